"""Choose the stack dumps that can tell what moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame, ThreadStack
from reprokit.core.records.observation import Observation


def stack_place(raw: Sequence[Frame]) -> str:
    """The innermost frame that is more than machinery, as ``file:line in function``; ``raw`` is not
    normalised.
    """
    told = [(f, fr.normalise_file(f.file)) for f in raw]
    found = next(
        (t for t in told if t[1] not in ("<frozen>", "<agent>", "<stdlib>/threading.py")), None
    )
    if found is None and not told:
        return "an unknown place"
    frame, file = found or told[0]
    shown = frame.file.rsplit("/", 1)[-1] if file == "<user>" else file
    return f"{shown}:{frame.line} in {frame.function}"


def only_recent(seen: Observation, rounds: int = 3) -> Observation:
    """The same with only the dumps that can tell what moves: the last rounds, and of them those
    since the last progress.

    Every text that says what moved, and the signature, use these dumps and no others.
    """
    first = max(max((d.number for d in seen.dumps), default=0) - rounds + 1, seen.still_from)
    return replace(seen, dumps=tuple(d for d in seen.dumps if d.number >= first))


def threads_of(seen: Observation, pid: int) -> list[list[ThreadStack]]:
    """The threads of ``pid`` in each dump, from the tool that knows threads apart where it
    worked.
    """
    for tool in ("py-spy", "faulthandler"):
        found = [
            list(d.threads) for d in seen.dumps if d.pid == pid and d.tool == tool and d.threads
        ]
        if found:
            return found
    return []


def stacks_of(seen: Observation, pid: int, tid: int) -> list[tuple[Frame, ...]]:
    """The stacks of one thread, one a dump, as the tool told them."""
    found = []
    for threads in threads_of(seen, pid):
        for thread in threads:
            if thread.frames and (
                thread.tid == tid if thread.tid else thread.is_main and tid == pid
            ):
                found.append(thread.frames)
    return found
