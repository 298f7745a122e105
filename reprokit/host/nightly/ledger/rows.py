"""The schema of the rows of a ledger, for its file and for imports.

Key insight: SQLite accepts any value in any column, so SQL conditions that are derived from the
schema check the file. SQLite makes one pass over each table, and the same condition deletes the
invalid rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, inspect

from reprokit.core.records import bounded_json
from reprokit.host.nightly.jobs.job_schema import (
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
    convert_to_struct,
    struct_to_json,
)
from reprokit.host.system import host_log

MAX_ID = 10**11
"""Maximum number of a row; a user never types a larger number."""
MAX_DEPTH = 16
"""Maximum depth of the JSON of settings, whose values are from a suite."""
JSON_COLUMNS: dict[str, Any] = {
    "settings": dict[Word, Any],
    "tags": list[Line],
    "phases": Phases,
    "traits": Traits,
    "shared": list[Line],
}
"""The columns with JSON, and its type."""
_EMPTY = {
    column: "[]" if str(kind).startswith("list") else "{}" for column, kind in JSON_COLUMNS.items()
}
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
"""The tables, in an order in which rows refer only to earlier tables or to other bugs."""
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
    """Return the columns of an imported row that do not refer to other rows; raises FailsSchema."""
    columns = struct_to_json(convert_to_struct(row, TABLES[table]))
    for column, value in columns.items():
        if column in JSON_COLUMNS and not is_valid_json(column, value):
            raise FailsSchema(f"{column} does not agree with the schema")
    return columns


def is_valid_json(column: str, text: str | bytes) -> int:
    """Return 1 if a JSON text is valid for the column, else 0; also called by SQLite."""
    try:
        if column == "settings":
            value = msgspec.convert(
                bounded_json.parse_json(text, max_depth=MAX_DEPTH), JSON_COLUMNS[column]
            )
            return int(isinstance(value.get("environment"), (str, type(None))))
        msgspec.json.decode(text, type=JSON_COLUMNS[column])
    except (ValueError, RecursionError) as problem:  # not JSON, not UTF-8, or a ValidationError
        host_log.log_ignored(problem)
        return 0
    return 1


def is_valid_word(column: str, text: bytes) -> int:
    """Return 1 if a short text matches the pattern of its column, else 0; called by SQLite."""
    try:
        msgspec.convert(text.decode(), Id if column == "id" else FileName)
    except ValueError as problem:  # not UTF-8, or a ValidationError
        host_log.log_ignored(problem)
        return 0
    return 1


FUNCTIONS: dict[str, Callable[[str, bytes], int]] = {
    "rk_holds": is_valid_json,
    "rk_is_word": is_valid_word,
}
"""The SQL functions that the conditions call."""


def column_condition(table: str) -> str:
    """Return an SQL condition that is true for rows of ``table`` that agree with the schema."""
    shape = inspect.type_info(TABLES[table])
    assert isinstance(shape, inspect.StructType)
    parts = [_of_type(field.name, field.type) for field in shape.fields]
    parts += [
        f"CASE WHEN {f.name} = '{_EMPTY[f.name]}' THEN 1 ELSE rk_holds('{f.name}', CAST({f.name} AS"
        " BLOB)) END"
        for f in shape.fields
        if f.name in JSON_COLUMNS
    ]
    if table in NUMBERED:
        parts.append(f"id BETWEEN 1 AND {MAX_ID}")
    for column, other in REFERENCES.get(table, {}).items():
        exists = f"{column} IN (SELECT id FROM {other.rstrip('?')})"  # noqa: S608 - constant names
        parts.append(
            f"({column} IS NULL OR {column} = 0 OR {exists})" if other.endswith("?") else exists
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


def row_as_json_line(row: Mapping[str, object], max_chars: int = 20_000) -> str:
    """Return a refused row as one line of JSON, for the quarantine."""
    return json.dumps(
        {k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()}, default=repr
    )[:max_chars]
