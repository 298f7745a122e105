"""Note which blocks of a program run, and describe the values that it reads from outside, for
``core/reduce/project/origins.py``.

A copy of the program calls it with each value. A description has metadata, and for plain values of
Python their text. It is written as soon as it is known, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import types
from typing import Any

from ...core.shared.contract import run_names

MAX_TEXT, MAX_CONTAINER_TEXT = 200, 600
MAX_ITEMS = 16
MAX_DIGITS = 8
"""The most characters of a setting that is no whole number."""
_known: dict[Any, Any] = {}
_counts: dict[int, int] = {}
_ran: set[int] = set()
_called: set[int] = set()
_made: dict[int, tuple[Any, dict[str, Any]]] = {}
"""The objects of classes of the program, by id, each with a description of how it is made."""


def value(number: int, one: Any, /) -> Any:
    """Note a value, and return it."""
    _note(("value", number), describe(one))
    return one


def definition(number: int, one: Any, /) -> Any:
    """Note a function or a class of the program, and return the value."""
    is_own = isinstance(one, (type, types.FunctionType)) and _is_own(one)
    _note(("value", number), {"name": one.__qualname__} if is_own else {})
    return one


def setting(number: int, one: Any, /) -> Any:
    """Note an attribute that is a plain value of Python, and return it.

    A number with many digits was computed, and says less to a reader than its name.
    """
    is_plain = one is None or type(one) in (bool, int, str)
    is_plain |= type(one) is float and len(repr(one)) <= MAX_DIGITS
    _note(("value", number), describe(one) if is_plain else {})
    return one


def ran(number: int, /) -> None:
    """Note that a block runs."""
    if number not in _ran:
        _ran.add(number)
        _write({"what": "ran", "number": number})


def called(number: int, is_init: bool, arguments: dict[str, Any], /) -> None:
    """Note the arguments of the first call of a function, and those with which objects are made."""
    if not is_init and number in _called:
        return
    described = {name: _of_argument(one) for name, one in arguments.items()}
    if is_init:
        made = arguments["self"]
        names = {"made": number, "class": type(made).__name__}
        # a class calls the __init__ of its base later; an object that is kept keeps its id
        _made.setdefault(id(made), (made, {**names, "arguments": described}))
    else:
        _called.add(number)
        _write({"what": "called", "number": number, "arguments": described})


def _of_argument(one: Any) -> dict[str, Any]:
    made, described = _made.get(id(one), (None, {}))
    if described and made is one:
        return described
    if dataclasses.is_dataclass(one) and _is_own(type(one)):
        fields = {
            f.name: _of_argument(getattr(one, f.name)) for f in dataclasses.fields(one) if f.init
        }
        return {"made": -1, "class": type(one).__name__, "arguments": fields}
    return describe(one)


def _is_own(one: Any) -> bool:
    """Return whether a function or a class is one of the program."""
    return vars(sys.modules["__main__"]).get(one.__qualname__) is one


def started(number: int, /) -> None:
    """Note that a loop begins."""
    _counts[number] = 0


def iteration(number: int, /, **variables: Any) -> None:
    """Note the variables of one iteration of a loop."""
    count = _counts[number] = _counts.get(number, 0) + 1
    for name, one in variables.items():
        described = describe(one)
        if type(one) is int and one == count - 1:
            described = {"is_index": True}
        _note(("loop", number, name), described)
    _write({"what": "iterations", "number": number, "count": count})


def describe(one: Any) -> dict[str, Any]:
    """Return a description of a value; empty if no expression can make one like it."""
    try:
        return _description(one)
    except Exception:  # such as a quantized tensor, which has no smallest value
        return {}


def _description(one: Any) -> dict[str, Any]:
    if one is None or type(one) in (bool, int, float, str):
        text = repr(one)
        is_written = len(text) <= MAX_TEXT and text not in ("nan", "inf", "-inf")
        is_written &= type(one) is not str or not os.path.isabs(one)  # a file of this machine
        return {"literal": text} if is_written else {}
    if type(one) in (list, tuple, dict) and len(one) <= MAX_ITEMS:
        parts = [_description(p) for p in ([*one, *one.values()] if type(one) is dict else one)]
        if all("literal" in part for part in parts):
            text = repr(one)  # such as the settings of a file
            return {"literal": text} if len(text) <= MAX_CONTAINER_TEXT else {}
        if not all(parts):
            return {}
        kind = type(one).__name__
        return {"parts": parts, "kind": kind}  # of a dict: its keys, then its values
    torch = sys.modules["torch"]
    if type(one) is torch.Tensor:
        return _of_tensor(one, torch)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(one) is numpy.ndarray:
        return {**_of_tensor(torch.from_numpy(one), torch), "is_array": True}
    return {}


def _of_tensor(one: Any, torch: Any) -> dict[str, Any]:
    if one.layout is not torch.strided or one.dtype.is_complex or not one.numel():
        return {}
    described: dict[str, Any] = {
        "shape": list(one.shape),
        "dtype": str(one.dtype),
        "is_float": one.dtype.is_floating_point,
        "requires_grad": one.requires_grad and one.is_leaf,
        "device": str(one.device),
    }
    if one.dtype.is_floating_point:
        with contextlib.suppress(Exception):  # such as a float8 tensor
            described["is_nonnegative"] = not bool((one < 0).any())
    elif one.dtype != torch.bool:
        # the values are the user's, but an index must stay valid
        described["range"] = [_round(int(one.min().clamp(max=0))), _round(int(one.max()))]
    return described


def _round(number: int) -> int:
    """Return the power of two that is next to a number and not farther from zero."""
    size = 1 << abs(number).bit_length() >> 1
    return -size if number < 0 else size


def _note(key: Any, described: dict[str, Any]) -> None:
    if key not in _known:
        _known[key] = described
    elif _known[key] in (described, {}):
        return
    else:
        merged = _merged(_known[key], described)
        if merged == _known[key]:
            return
        described = _known[key] = merged
    what, number, *name = key
    _write({"what": what, "number": number, "name": "".join(name), "described": described})


def _merged(first: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a value that differs from one evaluation to the next.

    A tensor has the first shape, such as that of all batches but the last, and the smaller range.
    A part of a container has the first value. It is empty for values that differ in more.
    """
    if "parts" in first and len(first["parts"]) == len(later.get("parts", ())):
        keys = len(first["parts"]) // 2 if first["kind"] == "dict" else 0
        if first["parts"][:keys] != later["parts"][:keys]:
            return {}
        pairs = zip(first["parts"], later["parts"], strict=True)
        parts = [
            part if "literal" in part and "literal" in other else _merged(part, other)
            for part, other in pairs
        ]
        return {**first, "parts": parts} if all(parts) and first["kind"] == later["kind"] else {}
    changes = {name for name in first.keys() | later.keys() if first.get(name) != later.get(name)}
    if not changes:
        return first
    if not changes <= {"shape", "range", "is_nonnegative"} or len(first["shape"]) != len(
        later["shape"]
    ):
        return {}
    merged = dict(first)
    if "is_nonnegative" in changes:
        merged["is_nonnegative"] = False
    if "range" in changes:
        (low, high), (other_low, other_high) = first["range"], later["range"]
        merged["range"] = low, high = [max(low, other_low), min(high, other_high)]
        if low > high:
            return {}
    return merged


def _write(row: dict[str, Any]) -> None:
    path = os.path.join(os.environ[run_names.RUN_DIR_VARIABLE], run_names.OUTSIDE_VALUES_FILE)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
