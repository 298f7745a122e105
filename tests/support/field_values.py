"""Strategies for the values of any type that a field of a record may have."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from hypothesis import strategies as st

from reprokit.core.shared.contract.serialize import field_types

JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Any: JSON,
    str: st.text(max_size=8),
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}


def values_of_type(kind: Any, without: frozenset[str] = frozenset()) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the type ``kind``. The fields of a record that are in
    ``without`` keep their defaults.
    """
    if kind in PLAIN:
        return PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        needed = {f.name for f in dataclasses.fields(kind) if _is_needed(f)}
        fields = {
            name: values_of_type(field_type)
            for name, field_type in field_types(kind).items()
            if name not in without
        }
        required = {name: values for name, values in fields.items() if name in needed}
        optional = {name: values for name, values in fields.items() if name not in needed}
        return st.fixed_dictionaries(required, optional=optional).map(lambda row: kind(**row))  # type: ignore[operator]
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of_type, args))
    if origin is list:
        return st.lists(values_of_type(args[0]), max_size=2)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of_type(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of_type, args))
    if origin in (dict, Mapping):
        return st.dictionaries(values_of_type(args[0]), values_of_type(args[1]), max_size=2)
    raise TypeError(f"no strategy for {kind}")


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
