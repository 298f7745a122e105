"""Where a run was: the phase and place that stacks, exceptions and the journal tell, and what says so."""

from __future__ import annotations

import itertools

from . import frames as fr
from . import phases
from .records import Frame, Link, Observation, Raised
from .signature import main_stacks, telling_line


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
    found = phases.of_events(seen.open_events)
    return found[0] if found else None


def of_exception(raised: Raised, seen: Observation) -> str | None:
    for link in reversed(raised.chain):
        found = phases.of_frames(fr.normalise(link.frames))
        if found:
            return found[0]
    for other in seen.compile_failures:
        if other is not raised and is_same(raised, other):
            return of_exception(other, Observation())
    return of_open_events(seen)


def exception_evidence(raised: Raised) -> tuple[str, ...]:
    chain = " > ".join(link.type for link in raised.chain)
    frames: tuple[Frame, ...] = next((link.frames for link in reversed(raised.chain) if link.frames), ())
    found = phases.of_frames(fr.normalise(frames))
    rows = [f"exception chain: {chain}", f"message: {first_line(fr.root(raised))[:300]}"]
    if found:
        rows.append(f"phase {found[0]} from frame {fr.show(found[1])}")
    return tuple(rows)


def has_moved(seen: Observation) -> bool:
    """Compiler frames changed between dumps. The user's frames, and libraries below the compiler, may spin in place."""
    inside = [[f for f in stack if f.file.startswith(("torch/", "triton/"))] for stack in main_stacks(seen)]
    names = [[fr.show(f) for f in stack] for stack in inside]
    return any(a != b for a, b in itertools.pairwise(names))


def is_same(a: Raised, b: Raised) -> bool:
    return fr.root(a).type == fr.root(b).type and fr.root(a).message[:200] == fr.root(b).message[:200]


def first_line(link: Link) -> str:
    return (telling_line(link.message) or link.type)[:300]


def doing(phase: str | None, seen: Observation) -> str:
    at = f" at {seen.position}" if seen.position and phase in phases.FINE_HEARTBEAT else ""
    return f"in phase {phase}{at}" if phase else f"in no phase that could be told{at}"
