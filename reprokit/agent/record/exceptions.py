"""Describe an exception for the journal: its chain from the wrapper to the root, with bounded
texts.
"""

from __future__ import annotations

from types import TracebackType

from ...core.shared import cuts
from ...core.shared.contract.events import ChainLink

_HEAD, _TAIL, _FRAMES, _LINKS = 24_000, 8_000, 400, 12


def describe_exception(error: BaseException) -> tuple[ChainLink, ...]:
    """The chain from the outermost exception to the innermost cause; frames innermost first.

    Follows ``inner_exception`` (Dynamo's and Inductor's wrappers) and then ``__cause__``: the outer
    type tells the phase, the innermost the bug.
    """
    chain: list[ChainLink] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(chain) < _LINKS:
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
    except Exception as problem:  # an exception's own __str__ may fail
        return f"<its text failed: {problem!r}>"
    return cuts.cut_middle(text, _HEAD, _TAIL)


def _frames(error: BaseException) -> tuple[tuple[str, str, int | None], ...]:
    rows: list[tuple[str, str, int | None]] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        rows.append((code.co_filename, getattr(code, "co_qualname", code.co_name), trace.tb_lineno))
        trace = trace.tb_next
    rows.reverse()
    return tuple(rows[: _FRAMES // 2] + rows[-_FRAMES // 2 :] if len(rows) > _FRAMES else rows)
