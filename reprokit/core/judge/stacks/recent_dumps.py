"""Choose the stack dumps that show what moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame, ThreadStack
from reprokit.core.records.observation import Observation


def stack_place(raw: Sequence[Frame]) -> str:
    """Return the innermost frame outside of Python's machinery as ``file:line in function``;
    ``raw`` is not normalised.
    """
    frames = [(f, fr.normalise_file(f.file)) for f in raw]
    if not frames:
        return "an unknown line"
    skipped = ("<frozen>", "<agent>", "<stdlib>/threading.py")
    frame, file = next((pair for pair in frames if pair[1] not in skipped), frames[0])
    shown = frame.file.rsplit("/", 1)[-1] if file == "<user>" else file
    return f"{shown}:{frame.line} in {frame.function}"


def only_recent(seen: Observation, rounds: int = 3) -> Observation:
    """Return the observation with only the dumps that show what moves: those of the last rounds,
    and of them those since the last progress.

    Every text about motion, and the signature, use only these dumps.
    """
    first = max(max((d.number for d in seen.dumps), default=0) - rounds + 1, seen.still_from)
    return replace(seen, dumps=tuple(d for d in seen.dumps if d.number >= first))


def threads_of(seen: Observation, pid: int) -> list[list[ThreadStack]]:
    """Return the threads of ``pid`` in each dump, from py-spy, which reports thread ids, or else
    from faulthandler.
    """
    for tool in ("py-spy", "faulthandler"):
        dumps = [d for d in seen.dumps if d.pid == pid and d.tool == tool and d.threads]
        if dumps:
            return [list(d.threads) for d in dumps]
    return []


def stacks_of(seen: Observation, pid: int, tid: int) -> list[tuple[Frame, ...]]:
    """Return the stacks of one thread, one for each dump, as the tool reported them."""
    stacks = []
    for threads in threads_of(seen, pid):
        for thread in threads:
            if thread.frames and (
                thread.tid == tid if thread.tid else thread.is_main and tid == pid
            ):
                stacks.append(thread.frames)
    return stacks
