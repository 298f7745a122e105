"""Turn records into JSON values, and JSON values into records by the types of their fields."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

MAX_ROWS = 20_000
"""The length of one field of a record."""


def from_json(kind: Any, value: Any) -> Any:
    """Return ``value`` as the type ``kind``; raises ValueError if it does not fit.

    A missing field of a record gets its default. A key that is not a field is ignored.
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
    if origin is list and isinstance(value, list):
        return [*_tuple((args[0], Ellipsis), value)]
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {from_json(args[0], k): from_json(args[1], v) for k, v in value.items()}
    if kind is float and type(value) in (int, float):
        return float(value)
    if origin is None and isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{_brief(value)} is not of type {_name(kind)}")


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """Return the types of a record's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _record(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{_brief(value)} is not of type {_name(kind)}")
    fields = field_types(kind)
    kept = {name: from_json(of, value[name]) for name, of in fields.items() if name in value}
    try:
        return kind(**kept)
    except TypeError as problem:
        raise ValueError(str(problem)) from problem


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        with contextlib.suppress(ValueError):
            return from_json(kind, value)
    raise ValueError(f"{_brief(value)} is of none of the types {', '.join(map(_name, kinds))}")


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if len(value) > MAX_ROWS:
        raise ValueError(f"{len(value)} rows are more than {MAX_ROWS}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_json(kinds[0], v) for v in value)
    if len(kinds) != len(value):
        raise ValueError(f"it has {len(value)} values and must have {len(kinds)}")
    return tuple(from_json(kind, v) for kind, v in zip(kinds, value, strict=True))


def _brief(value: Any) -> str:
    """Return a value for a message: a scalar, cut, or the type and length of a container."""
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return (
        f"{value!a:.60}" if not isinstance(value, str) or len(value) < 60 else f"{value[:60]!a}..."
    )


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))[:60]


SCHEMA = 1
"""Version of every JSON document that reprokit writes. It is increased when a key changes its
meaning.
"""


def to_json(record: Any) -> Any:
    """Turn a record, or a list of them, into plain JSON values."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, dict):
        return {str(k): to_json(v) for k, v in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(v) for v in record]
    return record
