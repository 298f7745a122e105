"""The rows of a ledger as the schema has them, in a file or in an import.

Key insight: SQLite keeps any value in any column, so SQL conditions made from the schema check the
file. One pass over each table takes place inside SQLite, and the same condition deletes the invalid
rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, inspect

from reprokit.core.records import bounded_json
from reprokit.host.nightly.jobs.schema import (
    Bytes,
    Clock,
    Count,
    FailsSchema,
    FileName,
    Flag,
    Id,
    Key,
    Line,
    Phases,
    Seconds,
    Text,
    Traits,
    Word,
    convert_as,
)

MOST_ID = 10**11
"""Maximum number of a row; numbers that people type are smaller."""
MOST_DEPTH = 16
"""Maximum depth of settings, whose values come from a suite."""
HOLDS: dict[str, Any] = {
    "settings": dict[Word, Any],
    "tags": list[Line],
    "phases": Phases,
    "traits": Traits,
    "shared": list[Line],
}
"""Columns that hold JSON, and its type."""
_EMPTY = {column: "[]" if str(kind).startswith("list") else "{}" for column, kind in HOLDS.items()}
"""The value in most rows. SQLite compares it faster than it calls a function; ``OR`` would call the
function too.
"""
Json = Annotated[str, Meta(max_length=1 << 20)]
Status = Literal["new", "regressed", "open", "flaky", "fixed", "muted", ""]


class NightRow(Struct):
    uid: Word
    name: FileName
    suite: Line
    started: Clock
    ended: Clock | None
    state: Literal["running", "done", "incomplete"]
    planned: Count
    note: Text


class CellRow(Struct):
    key: Key
    target: Key
    settings: Json
    tags: Json


class BugRow(Struct):
    title: Line
    kind: Line
    phase: Line
    cause: Line
    status: Status
    reason: Line
    muted: Line | None
    repro: Text
    repro_lines: Count | None
    pack: Line


class SignatureRow(Struct):
    id: Id
    algorithm: Count
    title: Line
    traits: Json


class RunRow(Struct):
    kind: Line
    n: Count
    ok: Count
    torch: Line
    triton: Line
    seconds: Seconds | None
    compile_s: Seconds | None
    peak_rss_bytes: Bytes | None
    most_rss_bytes: Bytes | None
    phases: Json
    is_expected: Flag
    problem: Line
    folder: Line


class SightingRow(Struct):
    k: Count
    n: Count
    torch: Line
    pack: Line
    is_expected: Flag


class RestartRow(Struct):
    pass


class AliasRow(Struct):
    pass


class EventRow(Struct):
    at: Clock
    what: Line
    why: Line


class ProposalRow(Struct):
    score: Annotated[float, Meta(ge=0, le=1)]
    shared: Json
    state: Literal["open", "merged", "refused"]


Sum = Annotated[int, Meta(ge=0, le=1 << 60)]


class PlaceRow(Struct):
    hits: Sum
    runs: Sum
    since: Sum


class TallyRow(Struct):
    hits: Sum
    cells: Sum
    surprises: Sum


class VersionRow(Struct):
    torch: Line
    hits: Sum


TABLES: dict[str, type[Struct]] = {
    "night": NightRow,
    "cell": CellRow,
    "bug": BugRow,
    "signature": SignatureRow,
    "run": RunRow,
    "sighting": SightingRow,
    "restart": RestartRow,
    "alias": AliasRow,
    "event": EventRow,
    "proposal": ProposalRow,
    "place": PlaceRow,
    "tally": TallyRow,
    "version": VersionRow,
}
"""In an order in which a row refers only to earlier tables; a bug may refer to other bugs."""
NUMBERED = ("night", "cell", "bug", "event")
"""Tables whose rows have numbers."""
REFERENCES = {
    "bug": {"changed": "night?", "tried": "night?", "merged": "bug?"},
    "signature": {"bug": "bug"},
    "run": {"night": "night", "cell": "cell"},
    "sighting": {"signature": "signature", "night": "night", "cell": "cell"},
    "restart": {"signature": "signature", "night": "night"},
    "alias": {"signature": "signature", "bug": "bug"},
    "event": {"bug": "bug?", "night": "night?"},
    "proposal": {"a": "bug", "b": "bug"},
    "place": {"signature": "signature", "cell": "cell", "first": "night", "last": "night"},
    "tally": {"signature": "signature", "night": "night"},
    "version": {"signature": "signature", "first": "night", "last": "night"},
}
"""Columns that refer to a row of another table; with ``?`` the reference may be empty."""


def check_row(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """The columns of an imported row that do not refer to other rows; raises Refused."""
    told: dict[str, Any] = msgspec.to_builtins(convert_as(row, TABLES[table]))
    for column, value in told.items():
        if column in HOLDS and not row_holds(column, value):
            raise FailsSchema(f"{column} does not hold what it has to")
    return told


def row_holds(column: str, text: str | bytes) -> int:
    """Whether a JSON text is valid for this column; also called by SQLite."""
    try:
        if column == "settings":
            value = msgspec.convert(
                bounded_json.parse_json(text, most_depth=MOST_DEPTH), HOLDS[column]
            )
            return int(isinstance(value.get("environment"), (str, type(None))))
        msgspec.json.decode(text, type=HOLDS[column])
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or a ValidationError
        return 0
    return 1


def is_word(column: str, text: bytes) -> int:
    """Whether a short text matches the pattern of its column; called by SQLite."""
    try:
        msgspec.convert(text.decode(), Id if column == "id" else FileName)
    except ValueError:  # not UTF-8, or a ValidationError
        return 0
    return 1


FUNCTIONS: dict[str, Callable[[str, bytes], int]] = {"rk_holds": row_holds, "rk_is_word": is_word}
"""The SQL functions that the conditions call."""


def column_condition(table: str) -> str:
    """SQL that is true for a row of ``table`` that agrees with the schema."""
    shape = inspect.type_info(TABLES[table])
    assert isinstance(shape, inspect.StructType)
    parts = [_of_type(field.name, field.type) for field in shape.fields]
    parts += [
        f"CASE WHEN {f.name} = '{_EMPTY[f.name]}' THEN 1 ELSE rk_holds('{f.name}', CAST({f.name} AS"
        " BLOB)) END"
        for f in shape.fields
        if f.name in HOLDS
    ]
    if table in NUMBERED:
        parts.append(f"id BETWEEN 1 AND {MOST_ID}")
    for column, other in REFERENCES.get(table, {}).items():
        found = f"{column} IN (SELECT id FROM {other.rstrip('?')})"  # noqa: S608 - names of our own
        parts.append(
            f"({column} IS NULL OR {column} = 0 OR {found})" if other.endswith("?") else found
        )
    return " AND ".join(parts)


def _of_type(column: str, kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        some = next(k for k in kind.types if not isinstance(k, inspect.NoneType))
        return f"({column} IS NULL OR {_of_type(column, some)})"
    if isinstance(kind, inspect.LiteralType):
        values = ", ".join(f"'{v}'" if isinstance(v, str) else str(v) for v in kind.values)
        return f"(typeof({column}) IN ('text', 'integer') AND {column} IN ({values}))"
    if isinstance(kind, inspect.IntType):
        return f"(typeof({column}) = 'integer' AND {column} BETWEEN {kind.ge} AND {kind.le})"
    if isinstance(kind, inspect.FloatType):
        return (
            f"(typeof({column}) IN ('integer', 'real') AND {column} BETWEEN {kind.ge} AND"
            f" {kind.le})"
        )
    assert isinstance(kind, inspect.StrType), f"{column} has a type that no column has"
    fits = (
        f"typeof({column}) = 'text' AND length(CAST({column} AS BLOB)) <="
        f" {4 * (kind.max_length or 0)}"
    )
    if kind.pattern:
        fits += f" AND rk_is_word('{column}', CAST({column} AS BLOB))"
    return f"({fits})"


def as_line(row: dict[str, Any], most_chars: int = 20_000) -> str:
    """A refused row as one line of JSON, for the quarantine."""
    return json.dumps(
        {k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()}, default=repr
    )[:most_chars]
