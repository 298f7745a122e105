"""Check what a command prints with ``--json`` against its published JSON Schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, NoReturn

import jsonschema

from reprokit.cli.documents import json_schema

NOT_A_RESULT = {"-h", "--help", "--help-all"}


def command_of(words: Sequence[str]) -> str:
    """Return the name of the command of a command line, such as ``nightly run``."""
    names = [word for word in words if not word.startswith("-")]
    return " ".join(names[: 2 if names[:1] == ["nightly"] else 1])


def assert_documented(words: Sequence[str], out: str) -> None:
    """Check that stdout is exactly one JSON document, and that the schema has each of its keys."""
    own = words[: words.index("--")] if "--" in words else words
    command = command_of(own)
    if "--json" not in own or NOT_A_RESULT & {*own} or command == "schema":
        return
    validator = strict_validator(command if command in json_schema.DOCUMENTS else "")
    for document in parse_documents(out, command == "nightly export"):
        for error in validator.iter_errors(document):
            # the document has an error for each alternative; the last one is that of an error
            rows = [f"{row.json_path}: {row.message[:300]}" for row in error.context or [error]]
            raise AssertionError(f"reprokit {command} prints another document:\n" + "\n".join(rows))


def parse_documents(out: str, has_lines: bool) -> list[Any]:
    """Parse one document, or one document on each line."""
    try:
        return [json.loads(out, parse_constant=_refuse_constant)]
    except json.JSONDecodeError:
        if not has_lines:
            raise
        return [json.loads(line) for line in out.splitlines()]


@functools.cache
def strict_validator(command: str) -> jsonschema.Draft202012Validator:
    """Return a validator that also refuses keys that the schema does not have.

    The schema allows them, because later versions add keys. An empty name is that of a command that
    does not exist, which gives an error.
    """
    if command:
        schema = json_schema.schema_of_command(command)
    else:
        schema = {**json_schema.schema_of_all(), "anyOf": [{"$ref": "#/$defs/ErrorDocument"}]}
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in schema["$defs"].values():
        if "properties" in part and command != "nightly export":
            part["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


def _refuse_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")
