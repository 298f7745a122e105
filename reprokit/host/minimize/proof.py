"""Run a repro where reprokit is not: fresh processes, compiled several times and once in eager."""

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
from reprokit.core.judge.stacks import frames
from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.dumps import Link
from reprokit.core.records.finding import Signature
from reprokit.core.records.kinds import kind_named
from reprokit.core.shared import cuts, without_compile
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import from_json
from reprokit.host.minimize import stand_alone
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.fresh_process import run_cold
from reprokit.host.run import launch, run_directory
from reprokit.host.system import (
    compiler_cache,
    deletion,
    files,
    guardian_client,
    interrupts,
    process_tree,
)

SIMULATED = frozenset({launch.CODEGEN, launch.SIMULATION})
"""The parts of the agent that a program needs on a simulated GPU."""
FLAKY_RUNS = 8
WATCHED_RUNS = 4
"""A first fresh run that passes may be a flaky failure's."""
HEALTHY_MULTIPLE = 4.0
POLL_S = 0.05


@dataclass(frozen=True)
class Proof:
    """What fresh processes said of one program."""

    answer: str
    """Of one watched run, against the signature: one of ``core.judge.same_failure.ANSWERS``."""
    title: str
    signature: str
    tries: int = 1
    """Watched runs until one showed the failure, or until it was given up."""
    runs: int = 0
    """Plain runs, without reprokit on their path, in a folder that has only the program."""
    hits: int = 0
    """Those that ended as the watched one did."""
    eager: str = ""
    """``passes``, or how the run without torch.compile ended."""
    seconds: tuple[float, ...] = ()
    digest: str = ""
    """SHA-256 of the text that was run."""
    asserts: bool = False
    """The failure is of a kind that ends no program, and in each hit the program failed by
    itself.
    """
    instead: str = ""
    """How the first run that did not fail in the same way ended; empty where each did."""
    needs: str = ""
    """What of this machine the program needs, so that it does not stand alone; empty where nothing
    shows that.
    """
    is_simulated: bool = False
    """The plain runs had reprokit's simulation of a GPU on their path, and nothing else of
    reprokit.
    """


@dataclass(frozen=True)
class ProgramEnd:
    """How a plain process ended."""

    status: int | None
    """None when it had to be ended."""
    link: Link | None
    seconds: float


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
) -> Proof:
    """Run ``text`` below ``folder``, once watched and ``runs`` times as anyone would; raises
    KeyboardInterrupt.

    ``confirm`` judges a watched run that showed the failure: whether it is the one of the
    signature. ``tries`` is the most watched runs; 0: as many as the failure's ``rate`` asks for.
    """
    most, tried = tries or max(min(same_failure.repeats_for(rate), FLAKY_RUNS), WATCHED_RUNS), 0
    while tried < most:
        tried += 1
        first = run_cold(text, python, folder / "watched", wanted, limits)
        judged = confirm(first)
        if first.answer == same_failure.SAME:
            break
    like, kind = _ending_of(judged, folder / "watched"), judged.verdict.kind
    proof = Proof(
        judged.answer,
        judged.signature.title,
        judged.signature.id,
        tried,
        digest=program_digest(text),
        is_simulated=limits.gpu is not None,
    )
    if judged.answer != same_failure.SAME:  # no plain run could be a hit
        instead = "passes" if judged.answer == same_failure.PASSES else _say(like)
        return dataclasses.replace(
            proof, instead=instead, needs=stand_alone.needed_names(like.link)
        )
    place = folder / "alone"
    deletion.delete(place, inside=folder)
    place.mkdir(parents=True)
    file = files.write_whole(place / run_names.REPRO_FILE, text)
    limit_s = max(60.0, HEALTHY_MULTIPLE * judged.seconds)
    if (
        limits.is_slow
    ):  # a plain process is quicker than a watched one, and imports torch within this
        limit_s = limits.deadline_s
    elif kind == "hang":
        limit_s = judged.seconds + 5
    count = runs if rate >= 1.0 else max(runs, FLAKY_RUNS)
    turns = (
        [count] if kind == "hang" and not limits.is_slow else [1] * count
    )  # waiting costs nobody
    endings = [
        e for turn in turns for e in run_plain(python, file, folder, limit_s, turn, gpu=limits.gpu)
    ]
    missed = [e for e in endings if not _shows(e, like, kind, limits)]
    hits = len(endings) - len(missed)
    needs = stand_alone.reads_environment(text) or next(
        filter(None, (stand_alone.needed_names(e.link) for e in missed)), ""
    )
    eager_said = ""
    if not limits.is_kernel:
        (ending,) = run_plain(
            python, file, folder, max(60.0, limit_s), is_eager=True, gpu=limits.gpu
        )
        eager_said = "passes" if ending.status == 0 else _say(ending)
    return dataclasses.replace(
        proof,
        runs=len(endings),
        hits=hits,
        eager=eager_said,
        seconds=tuple(e.seconds for e in endings),
        asserts=kind_named(kind).is_silent and hits > 0,
        instead=_say(missed[0]) if missed else "",
        needs=needs,
    )


def read_proof(told: Any) -> Proof | None:
    """The proof that a JSON object tells; None where it tells none."""
    with contextlib.suppress(ValueError):
        proof: Proof = from_json(Proof, told)
        return proof
    return None


def program_digest(text: str) -> str:
    """What identifies the text of a program."""
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
    """Run a file as anyone would, ``count`` times at once, in process groups of their own that are
    gone afterwards.

    The working folder is the file's own, and of PYTHONPATH only what belongs to the interpreter is
    left. Caches and what the runs wrote to stderr lie in ``folder``. Where a ``gpu`` is simulated,
    the agent is on the path.
    """
    runs: list[_Plain] = []
    try:
        for number in range(count):
            with interrupts.blocked():  # every run that starts is also ended
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
        self._cache, self._said = folder / f"cache-{number}", folder / f"stderr-{number}.txt"
        environ = stand_alone.plain_environment(launch.users_environment())
        compiler_cache.copy_cache(compiler_cache.kept_cache(python), self._cache)
        environ.update(
            {"TORCHINDUCTOR_CACHE_DIR": str(self._cache), run_names.RUN_ID_VARIABLE: self._run_id}
        )
        environ.update(without_compile.VARIABLES if is_eager else {})
        self._stack = contextlib.ExitStack()
        if gpu is not None:
            place = folder / f"simulated-{number}"
            run_directory.make_folders(place)
            self._stack.callback(deletion.delete, place, inside=folder)
            agent = self._stack.enter_context(launch.agent_folder(place, SIMULATED))
            path = os.pathsep.join([str(agent), *filter(None, [environ.get("PYTHONPATH")])])
            environ.update(
                REPROKIT_RUN_DIR=str(place), PYTHONPATH=path, **launch.simulation_variables(gpu)
            )
        words = ["-c", without_compile.PRELUDE] if is_eager else []
        self._guardian = guardian_client.watch_run_id(self._run_id, (self._cache,))
        self._began = time.monotonic()
        with self._said.open("wb") as stderr:
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
        """It ended by itself; the first time that it did is its time."""
        if not self._seconds and process_tree.has_ended(self._child.pid):
            self._seconds = time.monotonic() - self._began
        return self._seconds > 0

    def end(self) -> ProgramEnd:
        """Leave nothing of it, and say how it ended."""
        is_over = self.has_ended()
        process_tree.kill_all(self._child.pid, self._run_id)
        compiler_cache.fix_headers()
        status = self._child.wait()
        deletion.delete(self._cache, inside=self._cache.parent)
        self._stack.close()
        if self._guardian is not None:
            self._guardian.dismiss()
        seconds = round(self._seconds or time.monotonic() - self._began, 2)
        link = frames.parse_traceback(files.read_tail(self._said, 64_000))
        return ProgramEnd(status if is_over else None, link, seconds)


def is_like(one: ProgramEnd, other: ProgramEnd) -> bool:
    """Two runs ended alike: the same status, and the same exception but for what blanks blank."""
    if one.status != other.status or (one.link is None) != (other.link is None):
        return False
    if one.link is None or other.link is None:
        return True
    same_text = normalise_message(one.link.message) == normalise_message(other.link.message)
    return one.link.type == other.link.type and same_text


def _shows(ending: ProgramEnd, like: ProgramEnd, kind: str, limits: ProbeLimits) -> bool:
    """A plain run failed as the watched one did; of a kind that ends no program, by a check of its
    own.
    """
    if kind_named(kind).is_asserted and (
        ending.link is None or ending.link.type != "AssertionError"
    ):
        return False
    if (
        limits.sizes
    ):  # it measured all sizes and found that they cost too much; each watched run was of one
        return True
    return (ending.status != 0 or not kind_named(kind).is_silent) and is_like(ending, like)


def _ending_of(judged: CandidateResult, folder: Path) -> ProgramEnd:
    from reprokit.host.run import restore_run

    status = restore_run.read_run(folder).get("exit_status")
    link = frames.parse_traceback(
        files.read_tail(folder / run_names.LOGS_FOLDER / run_names.STDERR_FILE, 64_000)
    )
    return ProgramEnd(status if isinstance(status, int) else None, link, judged.seconds)


def _say(ending: ProgramEnd) -> str:
    if ending.link is not None:
        first = next(iter(ending.link.message.strip().splitlines()), "")
        return f"{ending.link.type}: {cuts.cut_head(first, 200)}"
    return "does not end" if ending.status is None else f"ends with exit status {ending.status}"
