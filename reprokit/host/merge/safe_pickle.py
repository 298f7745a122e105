"""Read pickled numbers, texts, lists and dictionaries without unpickling.

A pickle is a program for a small machine, and a stranger's pickle may run anything. This reader
knows only the operations that build plain data (``pickletools`` in the standard library describes
them), and refuses all others. It calls nothing that the data name.
"""

from __future__ import annotations

import struct
from typing import Any

MAX_VALUES = 20_000_000
_MARK = object()
_SIZES = {
    b"J": struct.Struct("<i"),
    b"K": struct.Struct("<B"),
    b"M": struct.Struct("<H"),
    b"G": struct.Struct(">d"),
}
_LENGTHS = {
    b"X": struct.Struct("<I"),
    b"\x8c": struct.Struct("<B"),
    b"\x8d": struct.Struct("<Q"),
    b"\x8a": struct.Struct("<B"),
    b"C": struct.Struct("<B"),
    b"B": struct.Struct("<I"),
    b"U": struct.Struct("<B"),
    b"T": struct.Struct("<I"),
}
_MEMO_PUT = {b"q": struct.Struct("<B"), b"r": struct.Struct("<I")}
_MEMO_GET = {b"h": struct.Struct("<B"), b"j": struct.Struct("<I")}
_CONSTANTS: dict[bytes, Any] = {b"N": None, b"\x88": True, b"\x89": False}
_EMPTY: dict[bytes, type[Any]] = {b"]": list, b"}": dict}


def read_plain_pickle(data: bytes) -> Any:
    """Return the value of a pickle of plain data.

    Raises:
        ValueError: it contains anything else, it is cut, or it has too many values.
    """
    try:
        return _read(data)
    except (IndexError, struct.error, KeyError, TypeError, UnicodeDecodeError) as problem:
        raise ValueError(f"a damaged pickle: {type(problem).__name__}") from problem


def _read(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    at = 0
    for _ in range(MAX_VALUES):
        code = data[at : at + 1]
        at += 1
        if code in _SIZES:
            layout = _SIZES[code]
            stack.append(layout.unpack_from(data, at)[0])
            at += layout.size
        elif code in _LENGTHS:
            layout = _LENGTHS[code]
            size = layout.unpack_from(data, at)[0]
            at += layout.size
            if at + size > len(data):
                raise ValueError("a damaged pickle: it is truncated")
            stack.append(_value(code, data[at : at + size]))
            at += size
        elif code in _MEMO_PUT:
            layout = _MEMO_PUT[code]
            memo[layout.unpack_from(data, at)[0]] = stack[-1]
            at += layout.size
        elif code in _MEMO_GET:
            layout = _MEMO_GET[code]
            stack.append(memo[layout.unpack_from(data, at)[0]])
            at += layout.size
        elif code == b"\x94":  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _EMPTY:
            stack.append(_EMPTY[code]())
        elif code == b")":
            stack.append(())
        elif code in (b"\x85", b"\x86", b"\x87"):  # TUPLE1 to TUPLE3
            count = code[0] - 0x84
            stack[-count:] = [tuple(stack[-count:])]
        elif code == b"(":
            stack.append(_MARK)
        elif code == b"t":
            stack.append(tuple(_to_mark(stack)))
        elif code == b"l":
            stack.append(_to_mark(stack))
        elif code == b"d":
            stack.append(_pairs(_to_mark(stack)))
        elif code == b"a":
            value = stack.pop()
            _list(stack).append(value)
        elif code == b"e":
            values = _to_mark(stack)
            _list(stack).extend(values)
        elif code == b"s":
            value, key = stack.pop(), stack.pop()
            _dict(stack)[_key(key)] = value
        elif code == b"u":
            rows = _pairs(_to_mark(stack))
            _dict(stack).update(rows)
        elif code == b"\x80":
            at += 1
        elif code == b"\x95":  # FRAME
            at += 8
        elif code == b".":
            return stack.pop()
        else:
            raise ValueError(
                f"the operation {code!r} at byte {at - 1}, which does not build plain data"
                if code
                else "a damaged pickle: it is truncated"
            )
    raise ValueError(f"more than {MAX_VALUES} operations")


def _value(code: bytes, data: bytes) -> Any:
    if code == b"\x8a":
        return int.from_bytes(data, "little", signed=True)
    if code in (b"C", b"B"):
        return data
    return data.decode("utf-8", "surrogatepass")


def _to_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise IndexError("no mark")
    values = stack[at + 1 :]
    del stack[at:]
    return values


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(map(_key, values[::2]), values[1::2], strict=True))


def _key(value: Any) -> Any:
    """Return a key of a dictionary. To hash a nested tuple may take any time and any stack."""
    if value is None or isinstance(value, (str, int, float, bytes)):
        return value
    raise TypeError("a key that is neither a text nor a number")


def _list(stack: list[Any]) -> list[Any]:
    if not isinstance(stack[-1], list):
        raise TypeError("not a list")
    return stack[-1]


def _dict(stack: list[Any]) -> dict[Any, Any]:
    if not isinstance(stack[-1], dict):
        raise TypeError("not a dictionary")
    return stack[-1]
