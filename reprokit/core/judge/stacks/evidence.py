"""Choose the evidence that a verdict is about: which exception, which fatal signal, which
stacks.
"""

from __future__ import annotations

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.records.dumps import Fault, Frame, Raised
from reprokit.core.records.observation import Observation


def blamed_exception(seen: Observation) -> Raised | None:
    """The exception that the verdict is about.

    A program may wrap what the compiler raised (``except Exception: raise MyError``) or fail later
    because of it: what left the compiler counts then.
    """
    raised, failures = seen.raised, seen.compile_failures
    if raised is None or not failures:
        return raised or (failures[-1] if failures else None)
    return raised if is_compilers(raised, seen) else failures[-1]


def is_compilers(raised: Raised, seen: Observation) -> bool:
    """The exception came from the compiler, or from code that it made."""
    frames = fr.normalise_frames(f for link in raised.chain for f in link.frames)
    return fr.RULES.is_compiled(frames) or any(
        is_same(raised, failure) for failure in seen.compile_failures
    )


def is_same(a: Raised, b: Raised) -> bool:
    """Two hooks saw one exception."""
    one, two = fr.root_cause(a), fr.root_cause(b)
    return one.type == two.type and one.message[:200] == two.message[:200]


def fatal_fault(seen: Observation) -> Fault | None:
    """The fatal signal's stack: of the process whose story is told, if it left one."""
    own = [f for f in seen.faults if f.frames and f.pid == seen.main_pid]
    return next(iter(own), next((f for f in seen.faults if f.frames), None))


def still_frames(seen: Observation) -> tuple[Frame, ...]:
    """The frames of the thread at work, innermost first, that did not move since the last
    progress.
    """
    return fr.stable_part(main_stacks(only_recent(seen)))


def main_stacks(seen: Observation) -> list[tuple[Frame, ...]]:
    """Normalised stacks of the target's main thread, one a dump, from the tool that gave most of
    them.
    """
    return max(stacks_by_tool(seen).values(), key=len, default=[])


def stacks_by_tool(seen: Observation, is_raw: bool = False) -> dict[str, list[tuple[Frame, ...]]]:
    """Stacks of the thread at work, in the order of the dumps, by the tool that took them;
    normalised unless ``is_raw``.

    That is the thread with compiler phases open, else the main one; faulthandler does not tell
    threads apart.
    """
    found: dict[str, list[tuple[Frame, ...]]] = {}
    for dump in sorted(
        seen.dumps, key=lambda d: (d.tool != "py-spy", d.number)
    ):  # it names methods in full
        if dump.pid != seen.main_pid or (seen.working_tid and dump.tool == "faulthandler"):
            continue
        wanted = [
            t
            for t in dump.threads
            if t.frames and (t.tid == seen.working_tid if seen.working_tid else t.is_main)
        ]
        if wanted:
            frames = wanted[0].frames
            found.setdefault(dump.tool, []).append(
                frames if is_raw else fr.normalise_frames(frames)
            )
    return found
