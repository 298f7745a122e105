"""Describe an exception for the journal: its chain of causes, with texts of limited length."""

from __future__ import annotations

from types import TracebackType

from ...core.shared import cuts
from ...core.shared.contract.event_base import ChainLink

_HEAD_CHARS, _TAIL_CHARS = 24_000, 8_000
"""The parts of a longer message that are kept."""
_MAX_FRAMES, _MAX_LINKS = 400, 12


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
