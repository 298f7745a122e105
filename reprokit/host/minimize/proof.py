"""Prove a repro in fresh processes without reprokit: several compiled runs and one in eager."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.judge.stacks import frames, python_traceback
from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.dumps import Link
from reprokit.core.records.finding import Signature
from reprokit.core.records.process_state import describe_exit
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared import cuts, without_compile
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import from_json
from reprokit.host.minimize import stand_alone
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.fresh_process import eager_program, run_in_fresh_process
from reprokit.host.run import launch, run_directory
from reprokit.host.system import (
    compiler_cache,
    deletion,
    files,
    guardian_client,
    host_log,
    interrupts,
    process_tree,
)
from reprokit.host.system.progress import OperationStatus

SIMULATED = frozenset({launch.CODEGEN, launch.SIMULATION})
"""The parts of the agent that a program needs on a simulated GPU."""
FLAKY_RUNS = 8
WATCHED_RUNS = 4
"""How many watched runs may pass before the failure is given up: it may be flaky."""
HEALTHY_MULTIPLE = 4.0
POLL_S = 0.05
Show = Callable[[OperationStatus], None]


@dataclass(frozen=True)
class Proof:
    """The results of one program in fresh processes."""

    answer: str
    """The answer of one watched run: one of ``core.judge.same_failure.ANSWERS``."""
    title: str
    signature: str
    tries: int = 1
    """Number of watched runs until one showed the failure, or until the limit."""
    runs: int = 0
    """Number of plain runs, without reprokit on their path, in a folder with only the program."""
    hits: int = 0
    """Number of plain runs that ended as the watched one did."""
    eager: str = ""
    """``passes``, or how the run without torch.compile ended."""
    seconds: tuple[float, ...] = ()
    digest: str = ""
    """SHA-256 of the text that was run."""
    asserts: bool = False
    """The failure is of a kind that does not end a program, and an assertion failed in each hit."""
    instead: str = ""
    """How the first run that did not fail in the same way ended; empty where each did."""
    needs: str = ""
    """What the program needs of this machine; empty where it is self-contained as far as known."""
    is_simulated: bool = False
    """The plain runs had only reprokit's simulation of a GPU on their path."""
    traceback: str = ""
    """The traceback of the first hit, shortened to the frames of packages; empty without one."""


@dataclass(frozen=True)
class ProgramEnd:
    """How a plain process ended."""

    status: int | None
    """The exit status; None when the process had to be killed."""
    link: Link | None
    seconds: float
    traceback: str = ""
    """As in :class:`Proof`."""


def prove_program(
    text: str,
    python: str,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits,
    rate: float = 1.0,
    runs: int = 3,
    confirm: Callable[[CandidateResult], CandidateResult] = lambda judged: judged,
    tries: int = 0,
    show: Show | None = None,
) -> Proof:
    """Run ``text`` below ``folder``, once watched and ``runs`` times as any user would.

    ``confirm`` checks whether a watched run that showed the failure has the location of the
    signature. ``tries`` limits the watched runs; with 0 the ``rate`` of the failure sets the limit.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    max_tries = tries or max(min(same_failure.repeats_for(rate), FLAKY_RUNS), WATCHED_RUNS)
    count = runs if rate >= 1.0 else max(runs, FLAKY_RUNS)
    status = OperationStatus("proving in fresh processes", total=1 + count + (not limits.is_kernel))

    def show_run(done: int, words: str) -> None:
        status.done, status.trying = done, words
        if show is not None:
            show(status)

    tried = 0
    while tried < max_tries:
        tried += 1
        show_run(1, "under instrumentation" + (f", try {tried}" if tried > 1 else ""))
        first = run_in_fresh_process(text, python, folder / "watched", wanted, limits)
        judged = confirm(first)
        if first.answer == same_failure.SAME:
            break
    watched, kind = _ending_of(judged, folder / "watched"), judged.verdict.kind
    proof = Proof(
        judged.answer,
        judged.signature.title,
        judged.signature.id,
        tried,
        digest=program_digest(text),
        is_simulated=limits.gpu is not None,
    )
    if judged.answer != same_failure.SAME:  # no plain run could be a hit
        instead = "passes" if judged.answer == same_failure.PASSES else _describe(watched)
        return dataclasses.replace(
            proof, instead=instead, needs=stand_alone.missing_dependency(watched.link)
        )
    own_folder = folder / "alone"
    deletion.delete_path(own_folder, inside=folder)
    own_folder.mkdir(parents=True)
    file = files.write_atomically(own_folder / run_names.REPRO_FILE, text)
    limit_s = max(60.0, HEALTHY_MULTIPLE * judged.seconds)
    # a plain process is faster than a watched one, so it imports torch within this time
    if limits.is_slow:
        limit_s = limits.deadline_s
    elif kind == "hang":
        limit_s = judged.seconds + 5
    # processes that hang use no CPU time, so all of them may run at once
    batches = [count] if kind == "hang" and not limits.is_slow else [1] * count
    endings: list[ProgramEnd] = []
    for size in batches:
        show_run(1 + len(endings) + size, "without reprokit")
        endings += run_plain(python, file, folder, limit_s, size, gpu=limits.gpu)
    missed = [e for e in endings if not _shows(e, watched, kind, limits)]
    hits = len(endings) - len(missed)
    shown = next((e for e in endings if e not in missed), None)
    needs = stand_alone.user_file_named_in(text) or next(
        filter(None, (stand_alone.missing_dependency(e.link) for e in missed)), ""
    )
    eager_end = ""
    if not limits.is_kernel:
        show_run(status.total, "without torch.compile")
        (ending,) = run_plain(
            python, file, folder, max(60.0, limit_s), is_eager=True, gpu=limits.gpu
        )
        eager_end = "passes" if ending.status == 0 else _describe(ending)
    return dataclasses.replace(
        proof,
        runs=len(endings),
        hits=hits,
        eager=eager_end,
        seconds=tuple(e.seconds for e in endings),
        asserts=kind_named(kind).is_silent and hits > 0,
        instead=_describe(missed[0]) if missed else "",
        needs=needs,
        traceback=shown.traceback if shown else "",
    )


def parse_proof(value: object) -> Proof | None:
    """Return the proof that a JSON value represents; None where it is not a proof."""
    with host_log.suppress(ValueError):
        proof: Proof = from_json(Proof, value)
        return proof
    return None


def program_digest(text: str) -> str:
    """Return the SHA-256 of the text of a program."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def run_plain(
    python: str,
    file: Path,
    folder: Path,
    limit_s: float,
    count: int = 1,
    is_eager: bool = False,
    gpu: Mapping[str, Any] | None = None,
) -> list[ProgramEnd]:
    """Run a file as any user would, in ``count`` processes at once.

    Each process has its own process group, and nothing of it is left afterwards. It runs in the
    folder of the file, and PYTHONPATH has only the folders that belong to the interpreter. The
    caches and the stderr of the runs are in ``folder``. Where a ``gpu`` is simulated, the agent is
    on the path.
    """
    runs: list[_Plain] = []
    try:
        for number in range(count):
            with interrupts.blocked():  # each process that starts is in the list that is ended
                runs.append(_Plain(python, file, folder, number, is_eager, gpu))
        deadline = time.monotonic() + limit_s
        while sum(run.has_ended() for run in runs) < count and time.monotonic() < deadline:
            interrupts.raise_if_interrupted()
            time.sleep(POLL_S)
    finally:
        with interrupts.blocked():
            endings = [run.end() for run in runs]
    return endings


class _Plain:
    """One process that runs a file."""

    def __init__(
        self,
        python: str,
        file: Path,
        folder: Path,
        number: int,
        is_eager: bool,
        gpu: Mapping[str, Any] | None,
    ) -> None:
        self._run_id, self._seconds = uuid.uuid4().hex, 0.0
        self._cache, self._stderr = folder / f"cache-{number}", folder / f"stderr-{number}.txt"
        environ = stand_alone.plain_environment(launch.environment_without_reprokit())
        compiler_cache.copy_cache(compiler_cache.kept_cache_folder(python), self._cache)
        environ.update(
            {"TORCHINDUCTOR_CACHE_DIR": str(self._cache), run_names.RUN_ID_VARIABLE: self._run_id}
        )
        environ.update(without_compile.VARIABLES if is_eager else {})
        self._stack = contextlib.ExitStack()
        if gpu is not None:
            run_path = folder / f"simulated-{number}"
            run_directory.make_folders(run_path)
            self._stack.callback(deletion.delete_path, run_path, inside=folder)
            agent = self._stack.enter_context(launch.copied_agent(run_path, SIMULATED))
            path = os.pathsep.join([str(agent), *filter(None, [environ.get("PYTHONPATH")])])
            environ.update(
                REPROKIT_RUN_DIR=str(run_path), PYTHONPATH=path, **launch.simulation_variables(gpu)
            )
        words = ["-c", eager_program(files.read_text(file))] if is_eager else []
        self._guardian = guardian_client.watch_run_id(self._run_id, (self._cache,))
        self._began = time.monotonic()
        with self._stderr.open("wb") as stderr:
            self._child = subprocess.Popen(
                [python, *words, str(file)],
                env=environ,
                cwd=file.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Return True when the process ended by itself; note its time at the first such call."""
        if not self._seconds and process_tree.has_ended(self._child.pid):
            self._seconds = time.monotonic() - self._began
        return self._seconds > 0

    def end(self) -> ProgramEnd:
        """Kill all that is left of the process, and return how it ended."""
        is_over = self.has_ended()
        process_tree.kill_process_tree(self._child.pid, self._run_id)
        compiler_cache.delete_partial_headers()
        status = self._child.wait()
        deletion.delete_path(self._cache, inside=self._cache.parent)
        self._stack.close()
        if self._guardian is not None:
            self._guardian.dismiss()
        seconds = round(self._seconds or time.monotonic() - self._began, 2)
        text = files.read_tail(self._stderr, 64_000)
        traceback = python_traceback.shorten_traceback(text, run_names.REPRO_FILE)
        link = frames.parse_traceback(text)
        return ProgramEnd(status if is_over else None, link, seconds, traceback)


def ends_alike(first: ProgramEnd, second: ProgramEnd) -> bool:
    """Return True when two runs have the same status and the same exception.

    Their messages are compared without the parts that differ between runs.
    """
    if first.status != second.status or (first.link is None) != (second.link is None):
        return False
    if first.link is None or second.link is None:
        return True
    same_text = normalise_message(first.link.message) == normalise_message(second.link.message)
    return first.link.type == second.link.type and same_text


def _shows(ending: ProgramEnd, watched: ProgramEnd, kind: str, limits: ProbeLimits) -> bool:
    """Return True when a plain run failed as the watched one did.

    A failure of a kind that does not end a program must show by the program's own assertion.
    """
    if kind_named(kind).is_asserted and (
        ending.link is None or ending.link.type != "AssertionError"
    ):
        return False
    # a plain run measures all sizes and asserts on their costs; each watched run had one size
    if limits.sizes:
        return True
    return (ending.status != 0 or not kind_named(kind).is_silent) and ends_alike(ending, watched)


def _ending_of(judged: CandidateResult, folder: Path) -> ProgramEnd:
    from reprokit.host.run import restore_run

    status = restore_run.read_run_file(folder).get("exit_status")
    link = frames.parse_traceback(
        files.read_tail(folder / run_names.LOGS_FOLDER / run_names.STDERR_FILE, 64_000)
    )
    return ProgramEnd(status if isinstance(status, int) else None, link, judged.seconds)


def _describe(ending: ProgramEnd) -> str:
    if ending.link is not None:
        first = next(iter(ending.link.message.strip().splitlines()), "")
        return f"{ending.link.type}: {cuts.cut_head(first, 200)}"
    return "does not end" if ending.status is None else describe_exit(ending.status)
