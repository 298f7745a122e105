"""One kernel, many architectures, several ptxas: which compile, what the others said, and what
would help.

Each cell is a program that a maintainer could run (core/shared/source/triton_programs.py), run in a
process of its own.
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
from reprokit.core.shared import simulation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.core.shared.source import triton_programs as programs
from reprokit.host.environment import agent_question
from reprokit.host.experiments import kernel_checks
from reprokit.host.probe.candidate import CandidateResult
from reprokit.host.run import launch, run_directory
from reprokit.host.system import child_question, files
from reprokit.host.system.progress import OperationStatus

VERSION_S = 20.0
MODULE_S = 180.0


@dataclass(frozen=True)
class MatrixCell:
    """What one architecture came to with one ptxas."""

    kernel: str
    arch: NvidiaArchitecture
    ptxas: str
    """Empty: the one that lies in Triton's own package."""
    answer: str
    """``compiled``, or the kind of what happened instead."""
    phase: str = ""
    said: str = ""
    title: str = ""
    seconds: float = 0.0

    @property
    def is_fine(self) -> bool:
        return self.answer == "compiled"


@dataclass
class KernelRemedy:
    """One way out for an architecture that fails."""

    words: str
    works: bool
    said: str = ""


@dataclass
class Matrix:
    """All cells, and remedies by ``(architecture, ptxas)`` of those that fail."""

    cells: list[MatrixCell] = field(default_factory=list)
    remedies: dict[tuple[str, str], list[KernelRemedy]] = field(default_factory=dict)


def find_ptxas(path: str) -> tuple[str, str]:
    """Where a ptxas lies, and its version; raises BadInput for what is none."""
    found = shutil.which(path)
    if found is None:
        why = (
            "it may not be executed; chmod +x it"
            if Path(path).is_file()
            else "there is no such file"
        )
        raise BadInput(f"--ptxas {path}: {why}")
    try:
        done = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as problem:
        raise BadInput(f"--ptxas {path} cannot be run: {problem}") from problem
    if done.returncode or "ptx" not in done.stdout.lower():
        raise BadInput(f"--ptxas {path} is no ptxas: it does not answer to --version as one does")
    rows = [row for row in done.stdout.splitlines() if "release" in row]
    version = (
        rows[-1].rpartition("release")[2].strip()
        if rows
        else done.stdout.strip().splitlines()[-1][:80]
    )
    return os.path.abspath(found), version


def read_kernels(file: Path, name: str, python: str, folder: Path) -> dict[str, str]:
    """The programs in ``file``: it is one, a module that Inductor generated, or launches kernels;
    raises BadInput for others.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"{file}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise BadInput(f"{file} is no Python source") from problem
    try:
        found = programs.find_kernels(text)
    except (SyntaxError, ValueError, RecursionError) as problem:
        raise BadInput(f"{file} does not parse: {problem}") from problem
    if found:
        if name and name not in found:
            raise BadInput(f"{file} has no kernel {name!r}; it has {', '.join(list(found)[:8])}")
        return _by_agent("kernels", file, name, python, folder)
    if programs.is_program(text):
        return {file.stem: text}
    if "triton" in text:
        return _by_agent("launches", file, name, python, folder)
    raise BadInput(
        f"{file} compiles no kernel by itself: neither triton.compile(..., target=GPUTarget(...)),"
        " nor kernels of Inductor, nor any of Triton stand in it; reprokit capture --gpu leaves"
        " such files below <run>/kernels"
    )


def _by_agent(verb: str, file: Path, name: str, python: str, folder: Path) -> dict[str, str]:
    """Have the agent turn kernels into programs, which takes torch; the device that it asks for is
    any.
    """
    run_directory.make_folders(folder)
    gpu = dataclasses.asdict(simulation.GPUS["h100"])
    more = {**launch.simulation_variables(gpu), run_names.RUN_DIR_VARIABLE: str(folder)}
    try:
        told: dict[str, list[str]] = agent_question.ask_agent(
            python, [verb, str(file.resolve())], MODULE_S, folder, more
        )
    except child_question.NoAnswer as problem:
        raise BadInput(f"{file}: its kernels cannot be read: {problem}") from problem
    if name and name not in told and verb == "launches":
        raise BadInput(
            f"{file} launches no kernel {name!r}; it launches {', '.join(list(told)[:8]) or 'none'}"
        )
    wanted = {k: v for k, v in told.items() if v and (not name or k == name)}
    if not wanted:
        why = (
            "it launched none"
            if verb == "launches"
            else "Inductor's decorators could not be read with this torch"
        )
        raise BadInput(f"{file}: its kernels cannot be read: {why}")
    return {
        Path(one).stem: files.read_text(folder / run_names.KERNELS_FOLDER / one)
        for names in wanted.values()
        for one in names
    }


def fill_matrix(
    texts: dict[str, str],
    archs: Sequence[NvidiaArchitecture],
    tools: Sequence[str],
    python: str,
    folder: Path,
    deadline_s: float,
    show: Callable[[OperationStatus], None] = lambda standing: None,
) -> Matrix:
    """Compile each kernel for each architecture with each ptxas, then look for what helps those
    that fail.
    """
    found = Matrix()
    wanted = [(name, arch, tool) for name in texts for arch in archs for tool in tools]
    found.cells = _compiled(texts, wanted, python, folder, deadline_s, show)
    known = {(c.kernel, c.arch, c.ptxas): c for c in found.cells}
    ways: dict[tuple[str, str], list[tuple[str, NvidiaArchitecture, str]]] = {}
    failing: dict[tuple[str, str], MatrixCell] = {}
    for cell in found.cells:
        key = (cell.arch.name, cell.ptxas)
        if cell.is_fine or key in failing:  # one kernel stands for all that fail there
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
            for t in dict.fromkeys([*tools, *_around()])
            if t != cell.ptxas
        ]
    new = dict.fromkeys(way for rows in ways.values() for way in rows if way not in known)
    for cell in _compiled(texts, list(new), python, folder, deadline_s, show):
        known[cell.kernel, cell.arch, cell.ptxas] = cell
    found.remedies = {
        key: [_remedy(failing[key], known[way]) for way in rows] for key, rows in ways.items()
    }
    return found


def _remedy(wanted: MatrixCell, cell: MatrixCell) -> KernelRemedy:
    if cell.ptxas != wanted.ptxas:
        words = f"use {cell.ptxas or 'the ptxas in the package of Triton'}"
    else:
        words = f"compile for {cell.arch.name}"
    if not cell.is_fine:
        return KernelRemedy(words, False, cell.said)
    if not nvidia_architectures.runs_on(cell.arch, wanted.arch.capability):
        major, minor = divmod(wanted.arch.capability, 10)
        return KernelRemedy(
            words,
            False,
            f"it compiles, and its cubin does not run on a device of capability {major}.{minor}",
        )
    return KernelRemedy(words, True)


def _around() -> list[str]:
    """Other ptxas of this machine."""
    places = (shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas")
    return list(dict.fromkeys(os.path.realpath(p) for p in places if p and os.access(p, os.X_OK)))


def _compiled(
    texts: dict[str, str],
    wanted: Sequence[tuple[str, NvidiaArchitecture, str]],
    python: str,
    folder: Path,
    deadline_s: float,
    show: Callable[[OperationStatus], None],
) -> list[MatrixCell]:
    done: dict[str, CandidateResult] = {}
    standing = OperationStatus()

    def note(name: str, one: CandidateResult) -> None:
        done[name] = one
        standing.words = f"{len(done)} of {len(wanted)} compiled"
        show(standing)

    variants = [programs.program_variant(texts[k], a.capability, a.exact, t) for k, a, t in wanted]
    kernel_checks.compile_all(
        ((str(n), v) for n, v in enumerate(variants)), python, folder, note, deadline_s=deadline_s
    )
    return [_cell(*wanted[n], done[str(n)]) for n in range(len(wanted))]


def _cell(kernel: str, arch: NvidiaArchitecture, ptxas: str, one: CandidateResult) -> MatrixCell:
    if one.verdict.kind == "ok":
        return MatrixCell(kernel, arch, ptxas, "compiled", seconds=one.seconds)
    said = one.verdict.reason.partition(": ")[2] or one.verdict.reason
    return MatrixCell(
        kernel,
        arch,
        ptxas,
        one.verdict.kind,
        one.verdict.phase or "",
        said,
        one.signature.title,
        one.seconds,
    )
