"""Choose the evidence that a verdict is about: the exception, the fatal signal, the stacks."""

from __future__ import annotations

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.records.dumps import Fault, Frame, Raised
from reprokit.core.records.observation import Observation


def blamed_exception(seen: Observation) -> Raised | None:
    """Return the exception that the verdict is about.

    A program may wrap an exception of the compiler (``except Exception: raise MyError``), or fail
    later because of it. Then the exception that left the compiler counts.
    """
    raised, failures = seen.raised, seen.compile_failures
    if raised is None or not failures:
        return raised or (failures[-1] if failures else None)
    return raised if is_from_compiler(raised, seen) else failures[-1]


def is_from_compiler(raised: Raised, seen: Observation) -> bool:
    """Return whether the exception came from the compiler or from compiled code."""
    frames = fr.normalise_frames(f for link in raised.chain for f in link.frames)
    return fr.RULES.is_compiled(frames) or any(
        is_same_exception(raised, failure) for failure in seen.compile_failures
    )


def has_ended_normally(seen: Observation) -> bool:
    """Return whether the program, or the calls of a factory, came to their end."""
    return seen.exit_status == 0 and (seen.is_command or seen.has_finished)


def ends_by_itself(seen: Observation) -> bool:
    """Return whether the program ended normally, or by an assertion of its own."""
    if seen.raised is None:
        return has_ended_normally(seen)
    root = fr.root_cause(seen.raised).type.rsplit(".", 1)[-1]
    return root == "AssertionError" and not is_from_compiler(seen.raised, seen)


def is_same_exception(a: Raised, b: Raised) -> bool:
    """Return whether two hooks saw the same exception."""
    first, second = fr.root_cause(a), fr.root_cause(b)
    return first.type == second.type and first.message[:200] == second.message[:200]


def fatal_fault(seen: Observation) -> Fault | None:
    """Return the fatal signal with its stack, from the main process if it left one."""
    own = [f for f in seen.faults if f.frames and f.pid == seen.main_pid]
    return next(iter(own), next((f for f in seen.faults if f.frames), None))


def still_frames(seen: Observation) -> tuple[Frame, ...]:
    """Return the frames of the working thread, innermost first, that did not move since the last
    progress.
    """
    return fr.stable_part(main_stacks(only_recent(seen)))


def main_stacks(seen: Observation) -> list[tuple[Frame, ...]]:
    """Return the normalised stacks of the working thread, one for each dump, from the tool that
    gave most of them.
    """
    return max(stacks_by_tool(seen).values(), key=len, default=[])


def stacks_by_tool(seen: Observation, is_raw: bool = False) -> dict[str, list[tuple[Frame, ...]]]:
    """Return the stacks of the working thread, in the order of the dumps, by the tool that took
    them; normalised unless ``is_raw``.

    The working thread is the one with open compiler phases, or else the main thread. faulthandler
    does not report thread ids.
    """
    stacks: dict[str, list[tuple[Frame, ...]]] = {}
    # py-spy first: it reports qualified names of methods
    for dump in sorted(seen.dumps, key=lambda d: (d.tool != "py-spy", d.number)):
        if dump.pid != seen.main_pid or (seen.working_tid and dump.tool == "faulthandler"):
            continue
        wanted = [
            t
            for t in dump.threads
            if t.frames and (t.tid == seen.working_tid if seen.working_tid else t.is_main)
        ]
        if wanted:
            frames = wanted[0].frames
            stacks.setdefault(dump.tool, []).append(
                frames if is_raw else fr.normalise_frames(frames)
            )
    return stacks


def ends_by_check(seen: Observation) -> bool:
    """Return whether a program whose line ``check`` ended it did so by a check of its own, such as
    an assertion, and not by a call that raised.
    """
    if seen.raised is None:
        return True
    name = fr.root_cause(seen.raised).type.rpartition(".")[2]
    return name == "AssertionError" or seen.check.startswith(("assert ", "raise "))
