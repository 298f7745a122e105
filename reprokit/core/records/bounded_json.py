"""Read JSON that a stranger or a target wrote: of bounded size, bounded depth, and without lone
surrogates.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_CHARS = 8 << 20
MOST_VALUES = 200_000
MOST_DEPTH = 200
"""Depth of nested values. A flame graph of 90 frames, the deepest that reprokit writes, has 185."""
MOST_DIGITS = 300
"""An integer with more cannot become a float."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(
    data: bytes | str,
    most_chars: int = MOST_CHARS,
    most_values: int = MOST_VALUES,
    most_depth: int = MOST_DEPTH,
    is_strict: bool = False,
) -> Any:
    """Give the value of a JSON text; raises ValueError, with a short message, for anything else.

    A lone surrogate, which cannot be written to a file or a terminal, becomes U+FFFD. ``is_strict``
    refuses an object with the same key twice, and numbers that are not in JSON.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    if len(text) > most_chars:
        raise ValueError(f"it has {len(text)} characters and may have {most_chars}")
    if sum(map(text.count, "{[,")) > most_values:  # before the parser makes an object of each
        raise ValueError(f"it has more than {most_values} values")
    try:
        if is_strict:
            value = json.loads(
                text, parse_int=_integer, object_pairs_hook=_unique, parse_constant=_no_number
            )
        else:
            value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value, most_depth)
    return _scrubbed(value) if _SURROGATE.search(text) or not _is_unicode(text) else value


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits and may have {MOST_DIGITS}")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _check_depth(value: Any, most: int) -> None:
    level = [value]
    for _ in range(most + 1):
        level = [
            child
            for holder in level
            if isinstance(holder, (dict, list))
            for child in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {most} levels deep")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_scrubbed(v) for v in value]
    if isinstance(value, dict):
        return {_scrubbed(k): _scrubbed(v) for k, v in value.items()}
    return value
