"""Prove a repro in fresh processes without reprokit: compiled runs, and one in eager.

One watched run says which failure the program has, by its signature. The plain runs say that the
program has it by itself. The watched run may be a forked child of a server that has imported torch
and has run nothing else. If a plain run ends differently from it, a fresh watched run decides. The
run in eager is forked too; if it does not pass, a fresh one decides.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from reprokit.core.experiments import known_conditions
from reprokit.core.judge import same_failure
from reprokit.core.judge.stacks import frames, phases
from reprokit.core.judge.stacks.location import plural
from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.claims import PackedProgram
from reprokit.core.records.dumps import Link
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.process_state import describe_exit
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import measured_kinds, run_names
from reprokit.core.shared.contract.serialize import from_json
from reprokit.host.minimize.proofs import stand_alone
from reprokit.host.minimize.proofs.plain_runs import PlainRuns, ProgramEnd
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.system import (
    deletion,
    files,
    host_log,
)
from reprokit.host.system.progress import OperationStatus

OF_THE_COMPILER = frozenset({"exception", "graph-break", "recompile-limit"})
"""Kinds of failures in which only code of the compiler ran."""
FLAKY_RUNS = 8
WATCHED_RUNS = 4
"""How many watched runs may pass before the failure is given up: it may be flaky."""
HEALTHY_MULTIPLE = 4.0
MIN_PLAIN_S = 60.0
"""Seconds for a plain run to import torch and to run the C++ compiler, on a busy machine."""
Show = Callable[[OperationStatus], None]
Confirm = Callable[[CandidateResult], CandidateResult]


@dataclass(frozen=True)
class Proof:
    """The results of one program in fresh processes."""

    about: ClassVar[type[PackedProgram]] = PackedProgram
    packed_as: ClassVar[str] = run_names.PROOF_FILE

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
    changed: str = ""
    """The answer of the plain run with ``CHANGED_VARIABLES``; empty if there was none. It is one of
    ``runs`` if it is ``same``.
    """
    traceback: str = ""
    """The traceback of the first hit, shortened to the frames of packages; empty without one."""

    @property
    def share(self) -> float:
        """The share of plain runs that failed in the same way."""
        return self.hits / self.runs if self.runs else 0.0


@dataclass(frozen=True)
class ProofRuns:
    """How many runs prove a program, and how many of them may run at once."""

    limit: int = 3
    """The most plain runs of a failure that is not flaky."""
    rate: float = 1.0
    """The share of runs in which the program fails."""
    max_tries: int = 0
    """The most watched runs; 0: as many as the rate needs."""
    cores: int = 1
    min_plain: int = 0
    """The fewest plain runs, for a program that is expected to fail more often than before."""

    def plain_runs(self, verdict: Verdict, is_forked: bool = False) -> int:
        """Return the number of plain runs.

        A failure that occurs in at most half of the runs shows in all of ``limit`` runs with a
        probability of at most 0.5 ** ``limit``. The watched run is one of them, where only code of
        the compiler ran. A failure of compiled code gets a plain run in its place, because its
        memory and its threads differ from run to run. If the watched run is forked, the forked run
        of the search that chose the program is one more. It is not, where a different process does
        the work: the server has no compile workers.
        """
        if self.rate < 1.0:
            return max(self.limit, FLAKY_RUNS, self.min_plain)
        others = (
            verdict.kind in OF_THE_COMPILER,
            is_forked and verdict.phase not in phases.WAITS_FOR_CHILD,
        )
        return max(self.limit - sum(others), 1, self.min_plain)

    def watched_runs(self) -> int:
        """Return the number of watched runs after which a program does not have the failure."""
        repeats = min(same_failure.repeats_for(self.rate), FLAKY_RUNS)
        return self.max_tries or max(repeats, WATCHED_RUNS)


def prove_program(
    text: str,
    python: str,
    folder: Path,
    wanted: Signature,
    limits: ProbeLimits,
    number: ProofRuns,
    confirm: Confirm = lambda judged: judged,
    watch: Callable[[str, bool], CandidateResult] | None = None,
    show: Show | None = None,
) -> Proof:
    """Run ``text`` below ``folder``, once watched and several times as any user would.

    ``confirm`` checks whether a watched run that showed the failure has the location of the
    signature. ``watch`` runs the program once in a forked child, without torch.compile if its
    second argument is True; None where only fresh processes may run the program.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    status = OperationStatus("proving in fresh processes")

    def show_run(words: str) -> None:
        status.trying = words
        if show is not None:
            show(status)

    def watch_fresh() -> tuple[CandidateResult, int]:
        for tried in range(1, number.watched_runs() + 1):
            show_run("recorded by reprokit" + (f", try {tried}" if tried > 1 else ""))
            first = run_in_fresh_process(text, python, folder / "watched", wanted, limits)
            judged = confirm(first)
            if first.answer == same_failure.SAME:
                break
        return judged, tried

    tried, is_forked, passes_in_eager = 1, watch is not None, False
    if watch is not None:
        show_run("recorded by reprokit, in a forked process")
        try:
            judged = confirm(watch(text, False))
            is_forked = judged.answer == same_failure.SAME
            passes_in_eager = is_forked and watch(text, True).verdict.kind == "ok"
        except Exception as problem:  # a fresh process needs no server
            host_log.log_ignored(problem)
            is_forked = False
    if not is_forked:
        judged, tried = watch_fresh()
    if judged.answer != same_failure.SAME:  # no plain run could be a hit
        return _proof_of_watched(text, judged, tried, limits)
    own_folder = folder / "alone"
    deletion.delete_path(own_folder, inside=folder)
    own_folder.mkdir(parents=True)
    file = files.write_atomically(own_folder / run_names.REPRO_FILE, text)
    plain_runs = PlainRuns(python, file, folder, limits.gpu, limits.isolation)
    kind = judged.verdict.kind
    limit_s = MIN_PLAIN_S + HEALTHY_MULTIPLE * judged.seconds
    if limits.is_slow:
        limit_s = limits.deadline_s
    elif kind == "hang":
        limit_s = judged.seconds + 5
    count = number.plain_runs(judged.verdict, is_forked)
    show_run(f"{plural(count, 'run')} without reprokit")
    at_once = number.cores
    is_timed = limits.is_slow or bool(limits.sizes) or limits.measures == measured_kinds.SLOWER
    if is_timed or stand_alone.opens_port(text):
        at_once = 1  # the time of a run decides, or only one process can have the port
    elif kind == "hang":  # processes that hang use no CPU time
        at_once = count
    may_change = limits.gpu is None and not (limits.is_slow or limits.sizes or limits.stage)
    last = known_conditions.CHANGED_VARIABLES if may_change and number.rate == 1.0 else {}
    has_eager = not (limits.is_kernel or passes_in_eager)
    endings, eager = plain_runs.run(count, limit_s, at_once, has_eager, last)
    changed = ""
    if last:
        changed = _answer_of(endings[-1], _ending_of(judged), kind, limits)
        if changed != same_failure.SAME:  # the variables decide, so it says nothing about the usual
            endings[-1:], _ = plain_runs.run(1, limit_s, 1, has_eager=False)
    if is_forked and not all(_shows(e, _ending_of(judged), kind, limits) for e in endings):
        judged, tried = watch_fresh()
        if judged.answer != same_failure.SAME:
            return _proof_of_watched(text, judged, tried, limits)
        # forked runs answer differently here, so none of them counts
        passes_in_eager, more = False, number.plain_runs(judged.verdict) - count
        again, eager = plain_runs.run(more, limit_s, at_once, has_eager=not limits.is_kernel)
        endings += again
    watched, kind = _ending_of(judged), judged.verdict.kind
    missed = [e for e in endings if not _shows(e, watched, kind, limits)]
    hits = len(endings) - len(missed)
    shown = next((e for e in endings if e not in missed), None)
    needs = stand_alone.user_file_named_in(text) or next(
        filter(None, (stand_alone.missing_dependency(e.link) for e in missed)), ""
    )
    eager_end = "passes" if passes_in_eager else ""
    if eager is not None:
        eager_end = "passes" if eager.status == 0 else describe_end(eager)
    return dataclasses.replace(
        _proof_of_watched(text, judged, tried, limits),
        runs=len(endings),
        hits=hits,
        eager=eager_end,
        seconds=tuple(e.seconds for e in endings),
        asserts=kind_named(kind).is_silent and hits > 0,
        instead=describe_end(missed[0]) if missed else "",
        needs=needs,
        changed=changed,
        traceback=shown.traceback if shown else "",
    )


def _answer_of(ending: ProgramEnd, watched: ProgramEnd, kind: str, limits: ProbeLimits) -> str:
    """Return the answer of a plain run: one of ``same``, ``passes`` and ``other``."""
    if _shows(ending, watched, kind, limits):
        return same_failure.SAME
    return same_failure.PASSES if ending.status == 0 else same_failure.OTHER


def _proof_of_watched(text: str, judged: CandidateResult, tried: int, limits: ProbeLimits) -> Proof:
    """Return what the watched runs alone say; after a failure, plain runs complete it."""
    proof = Proof(
        judged.answer,
        judged.signature.title,
        judged.signature.id,
        tried,
        digest=program_digest(text),
        is_simulated=limits.gpu is not None,
    )
    if judged.answer == same_failure.SAME:
        return proof
    watched = _ending_of(judged)
    instead = "passes" if judged.answer == same_failure.PASSES else describe_end(watched)
    return dataclasses.replace(
        proof, instead=instead, needs=stand_alone.missing_dependency(watched.link)
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


def ends_alike(first: ProgramEnd, second: ProgramEnd) -> bool:
    """Return True when two runs have the same status and the same exception.

    Their messages are compared without the parts that differ between runs.
    """
    if first.status != second.status or (first.link is None) != (second.link is None):
        return False
    if first.link is None or second.link is None:
        return True
    return first.link.type == second.link.type and _words_of(first.link) == _words_of(second.link)


def _words_of(link: Link) -> list[str]:
    """Return the message without what differs between runs: all of it, and each of its lines."""
    return [normalise_message(text) for text in (link.message, *link.message.splitlines())]


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


def _ending_of(judged: CandidateResult) -> ProgramEnd:
    return ProgramEnd(
        judged.seen.exit_status, frames.parse_traceback(judged.stderr), judged.seconds
    )


def describe_end(ending: ProgramEnd) -> str:
    if ending.link is not None:
        message = " ".join(ending.link.message.split())
        return f"{ending.link.type}: {cuts.cut_head(message, 200)}"
    return "does not end" if ending.status is None else describe_exit(ending.status)
