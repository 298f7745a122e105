"""Describe an exception for the journal: its chain of causes, with texts of limited length."""

from __future__ import annotations

import os
from types import TracebackType

from ...core.shared import cuts
from ...core.shared.contract.event_base import ChainLink

_HEAD_CHARS, _TAIL_CHARS = 24_000, 8_000
"""The parts of a longer message that are kept."""
_MAX_FRAMES, _MAX_LINKS = 400, 12
_AGENT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def describe_exception(error: BaseException) -> tuple[ChainLink, ...]:
    """Return the chain from the outermost exception to the innermost cause.

    It follows ``inner_exception`` (the wrappers of Dynamo and Inductor) and then ``__cause__``: the
    outermost type shows the phase, and the innermost the bug. The innermost frame comes first.
    """
    chain: list[ChainLink] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(chain) < _MAX_LINKS:
        seen.add(id(current))
        kind = type(current)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        chain.append(
            ChainLink(
                type=module + kind.__qualname__, message=_text(current), frames=_frames(current)
            )
        )
        inner = getattr(current, "inner_exception", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__
    return tuple(chain)


def hide_agent(error: BaseException) -> TracebackType | None:
    """Remove the frames of the agent's hooks from the tracebacks of an exception that is printed,
    and return its own one. An exception that the agent itself raised keeps them.
    """
    links = [error]
    for link in links:
        link.__traceback__ = _without_agent(link.__traceback__)
        more = (link.__cause__, link.__context__)
        links += [one for one in more if one is not None and all(one is not had for had in links)]
    return error.__traceback__


def _without_agent(trace: TracebackType | None) -> TracebackType | None:
    rows: list[TracebackType] = []
    while trace is not None:
        rows.append(trace)
        trace = trace.tb_next
    if rows and _is_agents(rows[-1]):
        return rows[0]
    kept = [row for row in rows if not _is_agents(row)]
    for row, following in zip(kept, [*kept[1:], None], strict=True):
        row.tb_next = following
    return kept[0] if kept else None


def _is_agents(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_AGENT)


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as problem:  # the exception's own __str__ may raise
        return f"<str() of the exception raised {problem!r}>"
    return cuts.cut_middle(text, _HEAD_CHARS, _TAIL_CHARS)


def _frames(error: BaseException) -> tuple[tuple[str, str, int | None], ...]:
    rows: list[tuple[str, str, int | None]] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        rows.append((code.co_filename, getattr(code, "co_qualname", code.co_name), trace.tb_lineno))
        trace = trace.tb_next
    rows.reverse()
    half = _MAX_FRAMES // 2
    return tuple(rows[:half] + rows[-half:] if len(rows) > _MAX_FRAMES else rows)
