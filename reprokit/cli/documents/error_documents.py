"""The JSON document of an error."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

import msgspec


class ErrorKeys(TypedDict):
    """An error: a stable word for programs, and one line for people."""

    code: Annotated[
        str,
        msgspec.Meta(
            description="usage, bad-input, configuration, consent, machine-limit, interrupted,"
            " nightly-run-failed, hunt-failed or defect"
        ),
    ]
    message: str


class ErrorDocument(TypedDict):
    """What every command prints with --json instead of a result; the exit code is not 0."""

    schema: Literal[1]
    error: ErrorKeys


def error_document(code: str, message: str) -> ErrorDocument:
    """Return the document of an error."""
    return {"schema": 1, "error": {"code": code, "message": message}}
