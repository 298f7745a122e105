"""Values of any type that a record's field may have, for property tests."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from hypothesis import strategies as st

from reprokit.core.shared.contract.serialize import hints

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


def of(kind: Any, without: frozenset[str] = frozenset()) -> st.SearchStrategy[Any]:
    """Values of the type ``kind``; of a record, its fields ``without`` these keep their
    defaults.
    """
    if kind in PLAIN:
        return PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        needed = {f.name for f in dataclasses.fields(kind) if _is_needed(f)}
        fields = {name: of(one) for name, one in hints(kind).items() if name not in without}
        given = {name: one for name, one in fields.items() if name in needed}
        more = {name: one for name, one in fields.items() if name not in needed}
        return st.fixed_dictionaries(given, optional=more).map(lambda row: kind(**row))  # type: ignore[operator]
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of, args))
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, args))
    if origin in (dict, Mapping):
        return st.dictionaries(of(args[0]), of(args[1]), max_size=2)
    raise TypeError(f"no values of {kind} are known")


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
