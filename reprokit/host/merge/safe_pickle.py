"""Read pickled numbers, texts, lists and dictionaries without unpickling.

A pickle is a program for a small machine, and a stranger's pickle may run anything. This reader
knows only the operations that build plain data (``pickletools`` in the standard library describes
them), and refuses all others. It calls nothing that the data name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
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
_EMPTY: dict[bytes, type[Any]] = {b"]": list, b"}": dict, b")": tuple}
_SKIPPED = {b"\x80": 1, b"\x95": 8}
"""The arguments of PROTO and FRAME, in bytes."""


def read_plain_pickle(data: bytes) -> Any:
    """Return the value of a pickle of plain data.

    Raises:
        ValueError: it contains anything else, it is cut, or it has too many values.
    """
    try:
        return _read(data)
    except (IndexError, struct.error, KeyError, TypeError, UnicodeDecodeError) as problem:
        raise ValueError(f"a damaged pickle: {type(problem).__name__}") from problem


class _Reader:
    """The stack and the memo of a pickle, and the position in its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def number(self, layout: struct.Struct) -> Any:
        """Read the argument of an operation."""
        value = layout.unpack_from(self.data, self.at)[0]
        self.at += layout.size
        return value

    def run(self, code: bytes) -> None:
        """Carry out one operation."""
        if code in _SIZES:
            self.stack.append(self.number(_SIZES[code]))
        elif code in _LENGTHS:
            size = self.number(_LENGTHS[code])
            if self.at + size > len(self.data):
                raise ValueError("a damaged pickle: it is truncated")
            self.stack.append(_value(code, self.data[self.at : self.at + size]))
            self.at += size
        elif code in _MEMO_PUT:
            self.memo[self.number(_MEMO_PUT[code])] = self.stack[-1]
        elif code in _MEMO_GET:
            self.stack.append(self.memo[self.number(_MEMO_GET[code])])
        elif code == b"\x94":  # MEMOIZE
            self.memo[len(self.memo)] = self.stack[-1]
        elif code in _CONSTANTS:
            self.stack.append(_CONSTANTS[code])
        elif code in _EMPTY:
            self.stack.append(_EMPTY[code]())
        elif code in _SKIPPED:
            self.at += _SKIPPED[code]
        elif code in _BUILDERS:
            _BUILDERS[code](self.stack)
        else:
            raise ValueError(
                f"the operation {code!r} at byte {self.at - 1}, which does not build plain data"
                if code
                else "a damaged pickle: it is truncated"
            )


def _read(data: bytes) -> Any:
    reader = _Reader(data)
    for _ in range(MAX_VALUES):
        code = data[reader.at : reader.at + 1]
        reader.at += 1
        if code == b".":
            return reader.stack.pop()
        reader.run(code)
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


def _make_tuple(count: int) -> Callable[[list[Any]], None]:
    def make(stack: list[Any]) -> None:
        stack[-count:] = [tuple(stack[-count:])]

    return make


def _append(stack: list[Any]) -> None:
    value = stack.pop()
    _list(stack).append(value)


def _extend(stack: list[Any]) -> None:
    values = _to_mark(stack)
    _list(stack).extend(values)


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _dict(stack)[_key(key)] = value


def _set_items(stack: list[Any]) -> None:
    rows = _pairs(_to_mark(stack))
    _dict(stack).update(rows)


_BUILDERS: dict[bytes, Callable[[list[Any]], None]] = {
    b"\x85": _make_tuple(1),
    b"\x86": _make_tuple(2),
    b"\x87": _make_tuple(3),
    b"(": lambda stack: stack.append(_MARK),
    b"t": lambda stack: stack.append(tuple(_to_mark(stack))),
    b"l": lambda stack: stack.append(_to_mark(stack)),
    b"d": lambda stack: stack.append(_pairs(_to_mark(stack))),
    b"a": _append,
    b"e": _extend,
    b"s": _set_item,
    b"u": _set_items,
}
"""Operations without an argument that combine values of the stack."""
