"""Where a run was: the phase and place that stacks, exceptions and the journal tell, and what says so."""

from __future__ import annotations

import itertools
from dataclasses import replace

from . import frames as fr
from . import phases
from .records import Frame, Link, Observation, Raised
from .signature import is_same, main_stacks, stacks_by_tool, telling_line


def at_work(seen: Observation) -> tuple[str | None, tuple[str, ...]]:
    """The phase at work, from the stacks first and from the journal otherwise, with what says so."""
    stacks = main_stacks(seen)
    if stacks:
        found = phases.of_frames(stacks[-1])
        if found:
            return found[0], (f"phase {found[0]} from frame {fr.show(found[1])}",)
    named = phases.of_events(seen.open_events)
    if named:
        return named[0], (f"phase {named[0]} from open event {named[1]}",)
    if stacks:
        return "eager", ("no frame of the compiler on the main thread's stack",)
    return None, ()


def of_open_events(seen: Observation) -> str | None:
    """The phase that the journal left open."""
    found = phases.of_events(seen.open_events)
    return found[0] if found else None


def of_exception(raised: Raised, seen: Observation) -> str | None:
    """The phase in which an exception was raised, from its innermost frames that tell one."""
    for link in reversed(raised.chain):
        found = phases.of_frames(fr.normalise(link.frames))
        if found:
            return found[0]
    for other in seen.compile_failures:
        if other is not raised and is_same(raised, other):
            return of_exception(other, Observation())
    # Dynamo strips its frames from what it raises to the user; its own exceptions tell all the same.
    if any(link.type.startswith("torch._dynamo.exc.") for link in raised.chain):
        return "dynamo-trace"
    return of_open_events(seen)


def exception_evidence(raised: Raised) -> tuple[str, ...]:
    """What a reader needs to check a verdict on an exception."""
    chain = " > ".join(link.type for link in raised.chain)
    frames: tuple[Frame, ...] = next((link.frames for link in reversed(raised.chain) if link.frames), ())
    found = phases.of_frames(fr.normalise(frames))
    rows = [f"exception chain: {chain}", f"message: {first_line(fr.root(raised))[:300]}"]
    if found:
        rows.append(f"phase {found[0]} from frame {fr.show(found[1])}")
    return tuple(rows)


def has_moved(seen: Observation, phase: str | None) -> bool:
    """Some tool saw the main thread's stack change between two dumps.

    Inside the compiler only compiler frames count: a custom pass, or a library below the compiler, may spin
    in place. Outside of it any other line is movement.
    """
    for stacks in stacks_by_tool(seen).values():
        if phase in phases.COMPILE_PHASES:
            views: list[list[object]] = [
                [fr.show(f) for f in stack if f.file.startswith(("torch/", "triton/"))] for stack in stacks
            ]
        else:
            views = [list(stack) for stack in stacks]
        if any(a != b for a, b in itertools.pairwise(views)):
            return True
    return False


def may_be_running(seen: Observation, phase: str | None) -> bool:
    """Outside of the compiler nothing is journalled: output, or a processor at work, may be a long healthy run.

    A kernel that stands on one line in every dump is believed to be stuck all the same, unless the target talks.
    """
    if seen.silent_s is not None and seen.silent_s < seen.quiet_limit_s:
        return True
    return phase != "kernel-run" and seen.main_pid in seen.busy_pids


def has_working_child(seen: Observation) -> bool:
    """A child is at work: a compiler that burns a processor, or a Python worker whose stack changes.

    g++ and ptxas may be silent for minutes; a worker that spins in one place is no progress.
    """
    dumped = {d.pid for d in seen.dumps if d.threads}
    for pid in seen.busy_pids:
        if pid != seen.main_pid and (pid not in dumped or has_moved(replace(seen, main_pid=pid, working_tid=0), None)):
            return True
    return False


def first_line(link: Link) -> str:
    """The words of an exception that say most, in one line."""
    return (telling_line(link.message) or link.type)[:300]


def doing(phase: str | None, seen: Observation) -> str:
    """``in phase lowering at node add_3``: the end of a verdict's sentence."""
    at = f" at {seen.position}" if seen.position and phase in phases.FINE_HEARTBEAT else ""
    return f"in phase {phase}{at}" if phase else f"in no phase that could be told{at}"
