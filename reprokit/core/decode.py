"""Make records again from the JSON values that ``records.to_json`` turned them into, as the types of their fields say."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints


def from_json(kind: Any, value: Any) -> Any:
    """Give ``value`` as the type ``kind``; raises ValueError where it does not fit.

    A record that lacks a field has its default; a key that names no field is left out.
    """
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, value)
    if origin in (Union, types.UnionType):
        return _first_that_fits(args, value)
    if origin is tuple and isinstance(value, (list, tuple)):
        return _tuple(args, value)
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {from_json(args[0], k): from_json(args[1], v) for k, v in value.items()}
    if kind is float and type(value) in (int, float):
        return float(value)
    if origin is None and isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{value!r:.80} is no {kind}")


@functools.cache
def hints(kind: Any) -> dict[str, Any]:
    """The types of a record's fields, by their names."""
    return get_type_hints(kind)


def _record(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.80} is no {kind.__name__}")
    given = {name: from_json(of, value[name]) for name, of in hints(kind).items() if name in value}
    try:
        return kind(**given)
    except TypeError as problem:
        raise ValueError(str(problem)) from problem


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        with contextlib.suppress(ValueError):
            return from_json(kind, value)
    raise ValueError(f"{value!r:.80} is none of {kinds}")


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_json(kinds[0], v) for v in value)
    if len(kinds) != len(value):
        raise ValueError(f"{len(value)} values are no {kinds}")
    return tuple(from_json(kind, v) for kind, v in zip(kinds, value, strict=True))
