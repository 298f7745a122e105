"""Compile kernels for several GPU architectures with several versions of ptxas.

Each cell of the matrix is a program that a maintainer can run
(core/shared/source/triton_programs.py), and runs in its own process.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.experiments import nvidia_architectures
from reprokit.core.experiments.nvidia_architectures import NvidiaArchitecture
from reprokit.core.reported import triton_dumps
from reprokit.core.shared import simulation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.core.shared.source import triton_programs as programs
from reprokit.host.environment import agent_queries
from reprokit.host.experiments import kernel_checks
from reprokit.host.probe.candidate import CandidateResult
from reprokit.host.run import launch, run_directory
from reprokit.host.system import child_commands, files
from reprokit.host.system.progress import OperationStatus

VERSION_S = 20.0
MODULE_S = 180.0


MAX_DUMP_BYTES = 256 << 20
"""Limit of a file, which may be a trace of many kernels."""


@dataclass(frozen=True)
class MatrixCell:
    """The result of one kernel for one architecture with one ptxas."""

    kernel: str
    arch: NvidiaArchitecture
    ptxas: str
    """The path of ptxas; empty for the one in Triton's package."""
    answer: str
    """``compiled``, or the kind of the verdict."""
    phase: str = ""
    message: str = ""
    title: str = ""
    seconds: float = 0.0

    @property
    def is_fine(self) -> bool:
        return self.answer == "compiled"


@dataclass
class KernelRemedy:
    """One possible remedy for an architecture that fails."""

    words: str
    works: bool
    message: str = ""


@dataclass
class Matrix:
    """All cells, and remedies by ``(architecture, ptxas)`` of those that fail."""

    cells: list[MatrixCell] = field(default_factory=list)
    remedies: dict[tuple[str, str], list[KernelRemedy]] = field(default_factory=dict)


def find_ptxas(path: str) -> tuple[str, str]:
    """Return the absolute path of a ptxas, and its version.

    Raises:
        BadInput: ``path`` is not a ptxas that can run.
    """
    executable = shutil.which(path)
    if executable is None:
        why = (
            "it may not be executed; chmod +x it"
            if Path(path).is_file()
            else "there is no such file"
        )
        raise BadInput(f"--ptxas {path}: {why}")
    try:
        done = subprocess.run(
            [executable, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as problem:
        raise BadInput(f"--ptxas {path} cannot be run: {problem}") from problem
    if done.returncode or "ptx" not in done.stdout.lower():
        raise BadInput(f"--ptxas {path} is not a ptxas: the output of --version does not name it")
    rows = [row for row in done.stdout.splitlines() if "release" in row]
    version = (
        rows[-1].rpartition("release")[2].strip()
        if rows
        else done.stdout.strip().splitlines()[-1][:80]
    )
    return os.path.abspath(executable), version


def read_kernels(file: Path, name: str, python: str, folder: Path) -> dict[str, str]:
    """Return the programs in ``file``, by name.

    The file is such a program, a module that Inductor generated, a script that launches kernels, or
    what Triton dumped of kernels.

    Raises:
        BadInput: the file is none of these.
    """
    try:
        text = _text_of(file)
    except OSError as problem:
        why = getattr(problem, "strerror", None) or problem
        raise BadInput(f"{file}: {why}") from problem
    except UnicodeDecodeError as problem:
        raise BadInput(f"{file} is not a Python source") from problem
    if file.suffix != ".py" and triton_dumps.is_dump(text):
        return _of_dump(file, text, name)
    try:
        kernels = programs.find_kernels(text)
    except (SyntaxError, ValueError, RecursionError) as problem:
        raise BadInput(f"{file} does not parse: {problem}") from problem
    if kernels:
        if name and name not in kernels:
            raise BadInput(f"{file} has no kernel {name!r}; it has {', '.join(list(kernels)[:8])}")
        return _by_agent("kernels", file, name, python, folder)
    if programs.is_kernel_program(text):
        return {file.stem: text}
    if "triton" in text:
        return _by_agent("launches", file, name, python, folder)
    raise BadInput(
        f"{file} compiles no kernel by itself: it has neither triton.compile(...,"
        " target=GPUTarget(...)), nor kernels of Inductor, nor kernels of Triton; reprokit capture"
        " --gpu writes such files below <run>/kernels"
    )


def _text_of(file: Path) -> str:
    """Return the text of a file, which may be packed with gzip."""
    with files.open_unpacked_file(file) as opened:
        data = files.read_at_most(opened, MAX_DUMP_BYTES + 1)
    if len(data) > MAX_DUMP_BYTES:
        raise BadInput(f"{file} has more than {MAX_DUMP_BYTES >> 20} MB")
    return data.decode("utf-8")


def _of_dump(file: Path, text: str, name: str) -> dict[str, str]:
    """Return the programs of the kernels that Triton dumped."""
    kernels = triton_dumps.programs_of_dump(text, file.stem)
    if name and name not in kernels:
        raise BadInput(f"{file} has no kernel {name!r}; it has {', '.join(list(kernels)[:8])}")
    if not kernels:
        raise BadInput(f"{file} has no TTIR or TTGIR, from which Triton compiles a kernel")
    return {name: kernels[name]} if name else kernels


def _by_agent(verb: str, file: Path, name: str, python: str, folder: Path) -> dict[str, str]:
    """Let the agent turn kernels into programs, which needs torch; the simulated GPU is arbitrary.

    Raises:
        BadInput: the kernels cannot be read.
    """
    run_directory.make_folders(folder)
    gpu = dataclasses.asdict(simulation.GPUS["h100"])
    more = {**launch.simulation_variables(gpu), run_names.RUN_DIR_VARIABLE: str(folder)}
    try:
        files_by_kernel: dict[str, list[str]] = agent_queries.query_agent(
            python, [verb, str(file.resolve())], MODULE_S, folder, more
        )
    except child_commands.CommandFailed as problem:
        raise BadInput(f"{file}: its kernels cannot be read: {problem}") from problem
    if name and name not in files_by_kernel and verb == "launches":
        launched = ", ".join(list(files_by_kernel)[:8]) or "none"
        raise BadInput(f"{file} launches no kernel {name!r}; it launches {launched}")
    wanted = {k: v for k, v in files_by_kernel.items() if v and (not name or k == name)}
    if not wanted:
        why = (
            "it launched none"
            if verb == "launches"
            else "this torch cannot read Inductor's decorators"
        )
        raise BadInput(f"{file}: its kernels cannot be read: {why}")
    return {
        Path(program).stem: files.read_text(folder / run_names.KERNELS_FOLDER / program)
        for names in wanted.values()
        for program in names
    }


def fill_matrix(
    texts: dict[str, str],
    archs: Sequence[NvidiaArchitecture],
    tools: Sequence[str],
    python: str,
    folder: Path,
    deadline_s: float,
    show: Callable[[OperationStatus], None] = lambda status: None,
) -> Matrix:
    """Compile each kernel for each architecture with each ptxas, and look for remedies."""
    matrix = Matrix()
    wanted = [(name, arch, tool) for name in texts for arch in archs for tool in tools]
    matrix.cells = _compiled(texts, wanted, python, folder, deadline_s, show)
    known = {(c.kernel, c.arch, c.ptxas): c for c in matrix.cells}
    ways: dict[tuple[str, str], list[tuple[str, NvidiaArchitecture, str]]] = {}
    failing: dict[tuple[str, str], MatrixCell] = {}
    for cell in matrix.cells:
        key = (cell.arch.name, cell.ptxas)
        if cell.is_fine or key in failing:  # remedies are tried with one kernel only
            continue
        failing[key] = cell
        others = [
            a
            for a in (
                nvidia_architectures.plain_architecture(cell.arch),
                nvidia_architectures.nearest_known(cell.arch),
            )
            if a
        ]
        ways[key] = [(cell.kernel, arch, cell.ptxas) for arch in others]
        ways[key] += [
            (cell.kernel, cell.arch, t)
            for t in dict.fromkeys([*tools, *_installed_ptxas()])
            if t != cell.ptxas
        ]
    new = dict.fromkeys(way for rows in ways.values() for way in rows if way not in known)
    for cell in _compiled(texts, list(new), python, folder, deadline_s, show):
        known[cell.kernel, cell.arch, cell.ptxas] = cell
    matrix.remedies = {
        key: [_remedy(failing[key], known[way]) for way in rows] for key, rows in ways.items()
    }
    return matrix


def _remedy(wanted: MatrixCell, cell: MatrixCell) -> KernelRemedy:
    if cell.ptxas != wanted.ptxas:
        words = f"use {cell.ptxas or 'the ptxas in the package of Triton'}"
    else:
        words = f"compile for {cell.arch.name}"
    if not cell.is_fine:
        return KernelRemedy(words, False, cell.message)
    if not nvidia_architectures.runs_on(cell.arch, wanted.arch.capability):
        major, minor = divmod(wanted.arch.capability, 10)
        return KernelRemedy(
            words,
            False,
            f"it compiles, but its cubin does not run on a device of capability {major}.{minor}",
        )
    return KernelRemedy(words, True)


def _installed_ptxas() -> list[str]:
    """Return the paths of ptxas on this machine, outside Triton's package."""
    paths = (shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas")
    return list(dict.fromkeys(os.path.realpath(p) for p in paths if p and os.access(p, os.X_OK)))


def _compiled(
    texts: dict[str, str],
    wanted: Sequence[tuple[str, NvidiaArchitecture, str]],
    python: str,
    folder: Path,
    deadline_s: float,
    show: Callable[[OperationStatus], None],
) -> list[MatrixCell]:
    done: dict[str, CandidateResult] = {}
    status = OperationStatus("compiling Triton kernels", total=len(wanted))

    def note_result(name: str, judged: CandidateResult) -> None:
        done[name] = judged
        status.done = len(done)
        show(status)

    variants = [programs.program_variant(texts[k], a.capability, a.exact, t) for k, a, t in wanted]
    kernel_checks.compile_programs(
        ((str(n), v) for n, v in enumerate(variants)), python, folder, note_result, deadline_s
    )
    return [_cell(*wanted[n], done[str(n)]) for n in range(len(wanted))]


def _cell(kernel: str, arch: NvidiaArchitecture, ptxas: str, judged: CandidateResult) -> MatrixCell:
    if judged.verdict.kind == "ok":
        return MatrixCell(kernel, arch, ptxas, "compiled", seconds=judged.seconds)
    message = judged.verdict.reason.partition(": ")[2] or judged.verdict.reason
    return MatrixCell(
        kernel,
        arch,
        ptxas,
        judged.verdict.kind,
        judged.verdict.phase or "",
        message,
        judged.signature.title,
        judged.seconds,
    )
