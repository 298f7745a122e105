"""Compile the Triton kernels of a simulated run for its GPU, each in a process of its own; the
first that fails is the story.

Inductor generated them and reprokit wrote each down as a program
(agent/record/generated_kernels.py). Warm servers fork a child for each, so that one that aborts,
hangs or takes all memory takes nothing along. Those that compiled before, with the same Triton and
the same ptxas, need not be compiled again.
"""

from __future__ import annotations

import contextlib
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
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits, judge_candidate, request_for
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.fresh_process import run_cold
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import compiler_cache, deletion, files, interrupts
from reprokit.host.system.progress import OperationStatus

FILE = run_names.KERNELS_FILE
DEADLINE_S = 120.0
"""Served seconds for one kernel; most take one or two."""
LIMITS = ProbeLimits(DEADLINE_S, wants_stacks=True, is_kernel=True)
NOBODY = Signature("", "", ALGORITHM)
PTXAS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
"""Variables that name another ptxas than that of the wheel."""


@dataclass(frozen=True)
class Compiled:
    """What became of one program."""

    file: str
    answer: str
    """``compiled``, ``known`` (it was compiled before), ``not compiled`` (an interrupt), or the
    kind of what happened.
    """
    title: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0


def listed_kernels(journals: Journals, run_path: Path) -> list[str]:
    """The programs that a run left, in the order in which they were generated."""
    found = [Path(file).name for event in journals.all(KernelWritten) for file in event.files]
    return [
        name
        for name in dict.fromkeys(found)
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
    """Compile them, all or those that are new, and give the observation of the first that fails, or
    what it was.
    """
    names = listed_kernels(journals, run_path)
    known = _Known(python)
    texts = {name: files.read_text(run_path / run_names.KERNELS_FOLDER / name) for name in names}
    asked = [n for n in names if which == "all" or not known.has(texts[n])]
    done = {n: Compiled(n, "not compiled" if n in asked else "known") for n in names}
    failed: dict[str, CandidateResult] = {}
    standing = OperationStatus()

    def note(name: str, one: CandidateResult) -> None:
        is_fine = one.verdict.kind == "ok"
        answer = "compiled" if is_fine else one.verdict.kind
        title = "" if is_fine else one.signature.title
        done[name] = Compiled(name, answer, title, one.seconds, one.cpu_s, one.seen.peak_rss_bytes)
        if is_fine:
            known.add(texts[name])
        elif one.verdict.kind != "unknown":
            failed[name] = one
        standing.asked += 1
        standing.words = f"{standing.asked} of {len(asked)} kernels compiled"
        if show:
            show(standing)

    try:
        compile_all([(n, texts[n]) for n in asked], python, run_path, note)
    finally:
        files.write_json(run_path / FILE, [dataclasses.asdict(done[n]) for n in names])
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


def compile_all(
    programs: Iterable[tuple[str, str]],
    python: str,
    folder: Path,
    note: Callable[[str, CandidateResult], None],
    deadline_s: float = DEADLINE_S,
) -> None:
    """Run each program in a forked child, on as many servers as there are processors; ``note``
    hears each as it ends.
    """
    limits = dataclasses.replace(LIMITS, deadline_s=deadline_s)
    waiting: SimpleQueue[tuple[str, str]] = SimpleQueue()
    count = 0
    for program in programs:
        waiting.put(program)
        count += 1

    def serve(number: int) -> None:
        place = folder / f"kernel-server-{number}"
        try:
            with ProbeServer(place, python, "triton") as server:
                while True:
                    name, text = waiting.get_nowait()
                    note(name, _one(server, text, python, limits))
        except Empty:
            return
        finally:
            deletion.delete(place, inside=place.parent)

    at_once = min(len(os.sched_getaffinity(0)), count)
    if not at_once:
        return
    with interrupts.allowed(), ThreadPoolExecutor(at_once) as pool:
        for ended in [pool.submit(serve, number) for number in range(at_once)]:
            ended.result()


def _one(server: ProbeServer, text: str, python: str, limits: ProbeLimits) -> CandidateResult:
    """Once more where the server was lost; whose problem it is then is that of the whole step."""
    for is_last in (False, True):
        try:
            outcome, folder = server.run(text, limits)
        except ServerLost:
            if is_last:
                raise
            continue
        try:
            return judge_candidate(
                request_for(folder / run_names.REPRO_FILE, python, limits), outcome, folder, NOBODY
            )
        finally:
            deletion.delete(folder, inside=server.folder)
    raise AssertionError  # not reached


def write_reproducer(run_path: Path, program: str, python: str) -> None:
    """Have Triton write its MLIR reproducer of the kernel that failed, which its maintainers ask
    for.
    """
    place = run_path / run_names.LOGS_FOLDER / "triton"
    text = f"import os\nos.environ['TRITON_REPRODUCER_PATH'] = {str(place)!r}\n{program}"
    with contextlib.suppress(OSError):
        run_cold(text, python, run_path / "reproducer", NOBODY, LIMITS)
    deletion.delete(run_path / "reproducer", inside=run_path)


class _Known:
    """Programs that compiled, by interpreter, Triton and ptxas."""

    def __init__(self, python: str) -> None:
        more = [os.environ.get(name, "") for name in PTXAS]
        more += [str(os.stat(p).st_mtime_ns) for p in more if p and os.path.exists(p)]
        state = compiler_cache.interpreter_state(python, "triton/__init__.py", more)
        self._folder = Path(platformdirs.user_cache_dir("reprokit")) / "kernels" / state

    def has(self, text: str) -> bool:
        return (self._folder / _digest(text)).exists()

    def add(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / _digest(text)).touch()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
