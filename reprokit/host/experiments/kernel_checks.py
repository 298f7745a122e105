"""Compile the Triton kernels of a simulated run for its GPU, and report the first that fails.

Inductor generated the kernels, and the agent wrote each of them as a program
(agent/record/generated_kernels.py). Warm servers fork a child for each program, so that a compile
that aborts, hangs or takes all memory does not affect the others. Programs that compiled before,
with the same Triton and the same ptxas, are not compiled again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import platformdirs

from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Signature
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import KernelWritten
from reprokit.host.probe.candidate import (
    CandidateResult,
    ProbeLimits,
)
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.forked_child import run_in_forked_child
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import compiler_cache, deletion, files, host_log, interrupts, process_tree
from reprokit.host.system.progress import OperationStatus

KERNEL_DEADLINE_S = 120.0
"""Seconds for the compile of one kernel; most take one or two."""
LIMITS = ProbeLimits(KERNEL_DEADLINE_S, wants_stacks=True, is_kernel=True)
NO_SIGNATURE = Signature("", "", ALGORITHM)
PTXAS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
"""Variables that name a different ptxas than that of the wheel."""


@dataclass(frozen=True)
class CompiledKernel:
    """The result of one program."""

    file: str
    answer: str
    """``compiled``, ``known`` (it compiled before), ``not compiled`` (the user interrupted), or the
    kind of the verdict.
    """
    title: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0


def recorded_kernels(journals: Journals, run_path: Path) -> list[str]:
    """Return the names of the programs of a run, in the order in which they were generated."""
    names = [
        Path(file).name for event in journals.events_of_type(KernelWritten) for file in event.files
    ]
    return [
        name
        for name in dict.fromkeys(names)
        if (run_path / run_names.KERNELS_FOLDER / name).is_file()
    ]


def check_kernels(
    seen: Observation,
    journals: Journals,
    run_path: Path,
    python: str,
    which: str,
    show: Callable[[OperationStatus], None] | None = None,
) -> Observation:
    """Compile the kernels of a run, and return the observation with the first that fails.

    ``which`` is ``all``, or anything else for those that did not compile before.
    """
    names = recorded_kernels(journals, run_path)
    known = _KnownPrograms(python)
    texts = {name: files.read_text(run_path / run_names.KERNELS_FOLDER / name) for name in names}
    chosen = [n for n in names if which == "all" or not known.has(texts[n])]
    done = {n: CompiledKernel(n, "not compiled" if n in chosen else "known") for n in names}
    failed: dict[str, CandidateResult] = {}
    status = OperationStatus("compiling Triton kernels", total=len(chosen))

    def note_result(name: str, judged: CandidateResult) -> None:
        is_fine = judged.verdict.kind == "ok"
        answer = "compiled" if is_fine else judged.verdict.kind
        title = "" if is_fine else judged.signature.title
        done[name] = CompiledKernel(
            name, answer, title, judged.seconds, judged.cpu_s, judged.seen.peak_rss_bytes
        )
        if is_fine:
            known.add(texts[name])
        elif judged.verdict.kind != "unknown":
            failed[name] = judged
        status.done += 1
        if show:
            show(status)

    try:
        compile_programs([(n, texts[n]) for n in chosen], python, run_path, note_result)
    finally:
        files.write_json(
            run_path / run_names.KERNELS_FILE, [dataclasses.asdict(done[n]) for n in names]
        )
    first = next((n for n in names if n in failed), None)
    if first is None:
        fine = sum(c.answer in ("compiled", "known") for c in done.values())
        return dataclasses.replace(seen, kernels=len(names), kernels_compiled=fine)
    write_reproducer(run_path, texts[first], python)
    others = tuple(f"{n}: {failed[n].signature.title}" for n in names if n in failed and n != first)
    return dataclasses.replace(
        failed[first].seen,
        kernel=first,
        kernels=len(names),
        failing_kernels=others,
        graphs=seen.graphs,
        simulated=seen.simulated,
        remarks=seen.remarks,
        is_command=False,
        started=seen.started,
        seconds=seen.seconds,
        cpu_s=seen.cpu_s + sum(c.cpu_s for c in done.values()),
        peak_rss_bytes=seen.peak_rss_bytes,
    )


def compile_programs(
    programs: Iterable[tuple[str, str]],
    python: str,
    folder: Path,
    note_result: Callable[[str, CandidateResult], None],
    deadline_s: float = KERNEL_DEADLINE_S,
) -> None:
    """Run each program in a forked child, with one server for each CPU.

    ``note_result`` is called with the name and the result of each program when it ends.
    """
    limits = dataclasses.replace(LIMITS, deadline_s=deadline_s)
    waiting: SimpleQueue[tuple[str, str]] = SimpleQueue()
    count = 0
    for program in programs:
        waiting.put(program)
        count += 1

    def serve(number: int) -> None:
        server_folder = folder / f"kernel-server-{number}"
        try:
            with ProbeServer(server_folder, python, "triton") as server:
                while True:
                    name, text = waiting.get_nowait()
                    note_result(name, _run_on_server(server, text, python, limits))
        except Empty:
            return
        finally:
            deletion.delete_path(server_folder, inside=server_folder.parent)

    at_once = min(process_tree.usable_cores(), count)
    if not at_once:
        return
    with interrupts.allowed(), ThreadPoolExecutor(at_once) as pool:
        for ended in [pool.submit(serve, number) for number in range(at_once)]:
            ended.result()


def _run_on_server(
    server: ProbeServer, text: str, python: str, limits: ProbeLimits
) -> CandidateResult:
    """Run a program, and repeat it once where the server was lost.

    Raises:
        ServerLost: the server was lost twice.
    """
    for is_last in (False, True):
        try:
            return run_in_forked_child(server, text, NO_SIGNATURE, limits, python)
        except ServerLost:
            if is_last:
                raise
    raise AssertionError  # not reached


def write_reproducer(run_path: Path, program: str, python: str) -> None:
    """Let Triton write its MLIR reproducer of a failed kernel, which its maintainers ask for."""
    path = run_path / run_names.LOGS_FOLDER / "triton"
    text = f"import os\nos.environ['TRITON_REPRODUCER_PATH'] = {str(path)!r}\n{program}"
    with host_log.suppress(OSError):
        run_in_fresh_process(text, python, run_path / "reproducer", NO_SIGNATURE, LIMITS)
    deletion.delete_path(run_path / "reproducer", inside=run_path)


class _KnownPrograms:
    """The programs that compiled before with this interpreter, Triton and ptxas."""

    def __init__(self, python: str) -> None:
        more = [os.environ.get(name, "") for name in PTXAS]
        more += [str(os.stat(p).st_mtime_ns) for p in more if p and os.path.exists(p)]
        state = compiler_cache.interpreter_digest(python, "triton/__init__.py", more)
        self._folder = Path(platformdirs.user_cache_dir("reprokit")) / "kernels" / state

    def has(self, text: str) -> bool:
        return (self._folder / _digest(text)).exists()

    def add(self, text: str) -> None:
        with host_log.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / _digest(text)).touch()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
