"""Judge a process that was observed while it ran: it advances, it is idle, or nothing moves.

Nobody knows how long it was in this state before. Therefore only a process without progress for the
whole of ``--stall`` is called a hang.
"""

from __future__ import annotations

from dataclasses import replace

from reprokit.core.judge.hangs import (
    hang_causes,
    lock_cycles,
    ranks,
    wait_graph,
    wait_words,
    waiting,
)
from reprokit.core.judge.hangs.hang_causes import Cause
from reprokit.core.judge.stacks import location, phases
from reprokit.core.judge.stacks.location import as_sentence, plural
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.stalls import INSIDE

UNANSWERED = "unanswered-requests"
"""The cause of a hang in which clients wait although every thread waits for a request."""

UNSURE_WITHOUT_NATIVE_FRAMES = hang_causes.CAUSES_WITH_NATIVE_FRAMES | {"python-loop"}
"""Causes that look the same in Python's stack as a lock or a loop in native code."""

WAITS_INSIDE = frozenset({"deadlock", "lock-deadlock", "thread-wait", "io-wait", "native-wait"})
"""Causes with which clients of the program wait too."""
MAX_WAITS = 4
"""Threads whose wait a sentence describes."""

CYCLE_S = 5.0
"""Seconds without progress after which threads that wait for each other's locks are a hang. No time
lets them go on; the seconds are for locks that only have the same name.
"""

ENDED = "it ended while it was observed"
"""The last progress of a process that ended; how it ended cannot be seen."""


def judge_attached(seen: Observation) -> Verdict | None:
    """Return the verdict on a process that reprokit did not start; None for any other run."""
    if not seen.is_attached:
        return None
    phase, evidence = location.phase_at_work(seen)
    cause = ranks.cause_of_collective(seen) or hang_causes.diagnose_hang(seen)
    if cause.name == "collective" and phase not in phases.COMPILE_PHASES:
        phase = "collective"
    evidence += location.motion_evidence(seen)
    work = location.work_details(seen, phase)
    what = f"Process {seen.main_pid}"

    def verdict_of(kind: str, name: str, why: str) -> Verdict:
        return Verdict(
            kind,
            phase,
            name,
            as_sentence(why),
            evidence,
            cause.detail,
            cause.also,
            cause.path,
            work,
        )

    if not any(dump.threads for dump in seen.dumps) and cause.name == "unknown":
        why = f"no stack of process {seen.main_pid} could be read, and the kernel shows no cause"
        return verdict_of("unknown", "unreadable", why)
    if seen.last_progress == ENDED:
        return verdict_of("unknown", "ended", f"{what} ended while it was observed")
    doing = location.doing_in_words(phase, seen, work)
    is_long = seen.seconds >= seen.quiet_limit_s
    if seen.last_progress and seen.graphs and is_long and phase in phases.COMPILE_PHASES:
        why = f"{what} was still compiling after {seen.seconds:.0f} s, {doing}"
        return verdict_of("slow-compile", cause.name, why)
    if seen.last_progress:
        why = f"{what} advances, {doing}: {seen.last_progress}"
        return verdict_of("ok", cause.name, why)
    is_inside = waiting.classify_stall(seen).state == INSIDE
    waits = None if is_inside else waiting.waits_of_tree(seen)
    requests = [] if is_inside else _describe_requests(seen)
    if waits and not requests:
        rows = wait_words.describe_work(seen) if seen.evidence.tasks else waits
        return verdict_of("ok", "idle", f"{what} is idle: {'; '.join(rows[:MAX_WAITS])}")
    if waits:
        rows = (*requests, *_own_ports(seen), *wait_words.describe_work(seen)[:MAX_WAITS])
        cause = Cause(UNANSWERED, "; ".join(rows))
    elif cause.name in WAITS_INSIDE:
        first, *rest = cause.detail.split("; ")
        detail = "; ".join((first, *requests, *_own_ports(seen), *rest))
        cause = replace(cause, detail=detail)
    still = f"{what} made no progress for {seen.quiet_s or 0:.0f} s"
    if cause.name == "collective" and (odd := ranks.odd_rank(seen)) is not None:
        who = f"Rank {odd.rank} (process {odd.pid})"
        still = f"{who} differs from the others: no progress for {seen.quiet_s or 0:.0f} s"
    if seen.quiet_before_s:
        still += f" ({seen.quiet_before_s:.0f} s of them before reprokit attached)"
    still += f", {doing}"
    because = f"{cause.name}: {cause.detail}"
    if (
        not _is_final(seen)
        and cause.name in UNSURE_WITHOUT_NATIVE_FRAMES
        and not _has_native_frames(seen)
    ):
        because += "; the cause may be native code instead: attach with --native to see it"
    if phase is None and cause.name in ("python-loop", "native-loop", "native-loop-holding-gil"):
        why = f"{what} uses the CPU, and none of its stacks could be read, so nothing shows whether"
        return verdict_of("unknown", cause.name, f"{why} it advances")
    limit_s = seconds_of_hang(seen, seen.quiet_limit_s)
    if (seen.quiet_s or 0.0) < limit_s:
        option = "" if limit_s < seen.quiet_limit_s else " (--stall)"
        more = f"a hang is at least {limit_s:.0f} s without progress{option}"
        return verdict_of("unknown", cause.name, f"{still}, {because}; {more}")
    return verdict_of("hang", cause.name, f"{still}, {because}")


def seconds_of_hang(seen: Observation, stall_s: float) -> float:
    """Return the seconds without progress that are a hang: ``stall_s``, or less for threads that
    wait for each other.
    """
    return min(stall_s, CYCLE_S) if _is_final(seen) else stall_s


def _is_final(seen: Observation) -> bool:
    """Return whether threads wait that no time lets go on."""
    return bool(lock_cycles.find_cycle(seen) or wait_graph.find_stuck(seen))


def _own_ports(seen: Observation) -> list[str]:
    """Return a clause for a program that is a client of itself."""
    ports = seen.evidence.own_ports
    named = f"its own port {ports[0]}" if len(ports) == 1 else f"{len(ports)} of its own ports"
    return [f"the program is connected to {named}"] if ports else []


def _describe_requests(seen: Observation) -> list[str]:
    """Return a clause for the requests without answer, and one for those that nobody has read. A
    request that arrived during the observation may still get its answer.
    """
    least_s = min(seen.seconds, seen.quiet_limit_s)
    requests = [request for request in seen.evidence.requests if request.seconds >= least_s]
    rows = []
    for state, words in (("unanswered", "no answer"), ("unread", "not been read")):
        found = [request for request in requests if request.state == state]
        if found:
            verb = "has" if len(found) == 1 else "have"
            ports = ", ".join(map(str, sorted({request.port for request in found})))
            rows.append(
                f"{plural(len(found), 'request')} to port {ports} {verb} {words}, the oldest for"
                f" {found[0].seconds:.0f} s"
            )
    return rows


def _has_native_frames(seen: Observation) -> bool:
    process = seen.evidence.process_of_pid(seen.main_pid)
    return process is not None and any(thread.native for thread in process.threads)
