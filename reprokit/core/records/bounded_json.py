"""Read JSON that a stranger or a target wrote, with limits on its size and depth, and without lone
surrogates.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_CHARS = 8 << 20
MAX_VALUES = 200_000
MAX_DEPTH = 200
"""The depth of nested values. The deepest that reprokit writes, a flame graph of 90 frames, has
185.
"""
MAX_DIGITS = 300
"""The digits of an integer. A much larger integer does not fit in a float."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(
    data: bytes | str,
    max_chars: int = MAX_CHARS,
    max_values: int = MAX_VALUES,
    max_depth: int = MAX_DEPTH,
    is_strict: bool = False,
) -> Any:
    """Return the value of a JSON text; raises ValueError, with a short message, if it is not JSON
    or beyond a limit.

    A lone surrogate, which cannot be written to a file or a terminal, becomes U+FFFD. ``is_strict``
    refuses an object that has a key twice, and NaN and infinities.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    if len(text) > max_chars:
        raise ValueError(f"it has {len(text)} characters and may have {max_chars}")
    if sum(map(text.count, "{[,")) > max_values:  # before the parser makes an object of each
        raise ValueError(f"it has more than {max_values} values")
    try:
        if is_strict:
            value = json.loads(
                text, parse_int=_integer, object_pairs_hook=_unique, parse_constant=_no_number
            )
        else:
            value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value, max_depth)
    return _scrubbed(value) if _SURROGATE.search(text) or not _is_unicode(text) else value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits and may have {MAX_DIGITS}")
    return int(digits)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("an object has the same key twice")
    return values


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")


def _check_depth(value: object, max_depth: int) -> None:
    level = [value]
    for _ in range(max_depth + 1):
        level = [
            child
            for holder in level
            if isinstance(holder, (dict, list))
            for child in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {max_depth} levels deep")


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
