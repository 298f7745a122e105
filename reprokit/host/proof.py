"""Run a repro where reprokit is not: fresh processes, compiled several times and once in eager."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core import eager, frames, oracle
from ..core.records import Link, Signature
from ..core.signature import normalise_message
from . import files, interrupts, launch, rundir, tree, warmth
from .cold import run_cold
from .judged import Judged, Limits

SILENT = frozenset(
    {"wrong-result", "recompile-limit", "recompile-storm", "graph-break", "superlinear-compile", "cudagraph-skip"}
)
"""Kinds that end no program: a plain run shows one only when the program checks for it itself."""
FLAKY_RUNS = 8
WATCHED_RUNS = 4
"""A first fresh run that passes may be a flaky failure's."""
HEALTHY_MULTIPLE = 4.0
POLL_S = 0.05


@dataclass
class Proof:
    """What fresh processes said of the repro."""

    answer: str
    """Of one watched run, against the signature: one of ``core.oracle.ANSWERS``."""
    title: str
    signature: str
    tries: int = 1
    """Watched runs until one showed the failure, or until it was given up."""
    runs: int = 0
    """Plain runs, without reprokit on their path."""
    hits: int = 0
    """Those that ended as the watched one did."""
    eager: str = ""
    """``passes``, or how the run without torch.compile ended."""
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Ending:
    """How a plain process ended."""

    status: int | None
    """None when it had to be ended."""
    link: Link | None
    seconds: float


def prove(
    text: str, python: str, folder: Path, wanted: Signature, limits: Limits, rate: float = 1.0, runs: int = 3,
    confirm: Callable[[Judged], Judged] = lambda judged: judged,
) -> Proof:  # fmt: skip
    """Run ``text`` below ``folder``, once watched and ``runs`` times as anyone would; raises KeyboardInterrupt.

    ``confirm`` says whether a watched run that showed the failure showed the one that is looked for.
    """
    most, tries = max(min(oracle.patience(rate), FLAKY_RUNS), WATCHED_RUNS), 0
    while tries < most:
        tries += 1
        shown = run_cold(text, python, folder / "watched", wanted, limits)
        judged = confirm(shown)
        if shown.answer == oracle.SAME:
            break
    proof = Proof(judged.answer, judged.signature.title, judged.signature.id, tries)
    file = files.write_whole(folder / "repro.py", text)
    like = _ending_of(judged, folder / "watched")
    limit_s = max(60.0, HEALTHY_MULTIPLE * judged.seconds)
    if limits.is_slow:  # a plain process is quicker than a watched one, and imports torch within this
        limit_s = limits.deadline_s
    elif judged.verdict.kind == "hang":
        limit_s = judged.seconds + 5
    count = runs if rate >= 1.0 else max(runs, FLAKY_RUNS)
    turns = [count] if judged.verdict.kind == "hang" and not limits.is_slow else [1] * count  # waiting costs nobody
    for ending in (e for turn in turns for e in run_plain(python, file, folder, limit_s, turn, gpu=limits.gpu)):
        proof.runs += 1
        shows = judged.answer == oracle.SAME and (ending.status != 0 or judged.verdict.kind not in SILENT)
        proof.hits += shows and (_asserts(ending) if limits.sizes else is_like(ending, like))
        proof.seconds.append(ending.seconds)
    if limits.is_kernel:
        return proof
    (ending,) = run_plain(python, file, folder, max(60.0, limit_s), is_eager=True, gpu=limits.gpu)
    proof.eager = "passes" if ending.status == 0 else _say(ending)
    return proof


def run_plain(
    python: str, file: Path, folder: Path, limit_s: float, count: int = 1, is_eager: bool = False,
    gpu: Mapping[str, Any] | None = None,
) -> list[Ending]:  # fmt: skip
    """Run a file as anyone would, ``count`` times at once, in process groups of their own that are gone afterwards.

    Where a ``gpu`` is simulated it needs the simulation, and with it the agent, on its path.
    """
    runs: list[_Plain] = []
    try:
        for number in range(count):
            runs.append(_Plain(python, file, folder, number, is_eager, gpu))
        deadline = time.monotonic() + limit_s
        while sum(run.has_ended() for run in runs) < count and time.monotonic() < deadline:
            time.sleep(POLL_S)
    finally:
        with interrupts.unheard():
            endings = [run.end() for run in runs]
    return endings


class _Plain:
    """One process that runs a file."""

    def __init__(
        self, python: str, file: Path, folder: Path, number: int, is_eager: bool, gpu: Mapping[str, Any] | None
    ) -> None:
        self._run_id, self._seconds = uuid.uuid4().hex, 0.0
        self._cache, self._said = folder / f"cache-{number}", folder / f"stderr-{number}.txt"
        environ = launch.users_environment()
        warmth.copy(warmth.kept(python), self._cache)
        environ.update({"TORCHINDUCTOR_CACHE_DIR": str(self._cache), tree.RUN_ID: self._run_id})
        environ.update(eager.VARIABLES if is_eager else {})
        self._stack = contextlib.ExitStack()
        if gpu is not None:
            place = folder / f"simulated-{number}"
            rundir.make_folders(place)
            self._stack.callback(shutil.rmtree, place, ignore_errors=True)
            agent = self._stack.enter_context(launch.agent_folder(place))
            environ.update(REPROKIT_RUN_DIR=str(place), PYTHONPATH=launch.python_path(agent), **launch.simulation(gpu))
        words = ["-c", eager.PRELUDE] if is_eager else []
        self._guardian = launch.start_guardian(self._run_id)
        self._began = time.monotonic()
        with self._said.open("wb") as stderr:
            self._child = subprocess.Popen(
                [python, *words, str(file)], env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=stderr, start_new_session=True,
            )  # fmt: skip

    def has_ended(self) -> bool:
        """It ended by itself; the first time that it did is its time."""
        if not self._seconds and tree.has_ended(self._child.pid):
            self._seconds = time.monotonic() - self._began
        return self._seconds > 0

    def end(self) -> Ending:
        """Leave nothing of it, and say how it ended."""
        is_over = self.has_ended()
        tree.kill_all(self._child.pid, self._run_id)
        warmth.mend_headers()
        status = self._child.wait()
        launch.dismiss(self._guardian)
        shutil.rmtree(self._cache, ignore_errors=True)
        self._stack.close()
        seconds = round(self._seconds or time.monotonic() - self._began, 2)
        link = frames.parse_traceback(files.read_tail(self._said, 64_000))
        return Ending(status if is_over else None, link, seconds)


def is_like(one: Ending, other: Ending) -> bool:
    """Two runs ended alike: the same status, and the same exception but for what blanks blank."""
    if one.status != other.status or (one.link is None) != (other.link is None):
        return False
    if one.link is None or other.link is None:
        return True
    same_text = normalise_message(one.link.message) == normalise_message(other.link.message)
    return one.link.type == other.link.type and same_text


def _asserts(ending: Ending) -> bool:
    """It measured all sizes and found that they cost too much; each watched run was of one."""
    return ending.link is not None and ending.link.type == "AssertionError"


def _ending_of(judged: Judged, folder: Path) -> Ending:
    from . import run

    status = run.read_run(folder).get("exit_status")
    link = frames.parse_traceback(files.read_tail(folder / "logs" / "stderr.txt", 64_000))
    return Ending(status if isinstance(status, int) else None, link, judged.seconds)


def _say(ending: Ending) -> str:
    if ending.link is not None:
        return f"{ending.link.type}: {ending.link.message.strip().splitlines()[0][:200] if ending.link.message else ''}"
    return "does not end" if ending.status is None else f"ends with exit status {ending.status}"
