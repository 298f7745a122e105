"""The JSON document of ``reprokit capture FILES``, where torch wrote the files."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from reprokit.cli.documents.known_documents import KnownKeys
from reprokit.cli.documents.scrub_documents import AnswerText
from reprokit.cli.documents.study_documents import PathText, SchemaVersion, SignatureKeys


class RecordFactKeys(TypedDict):
    """One fact of a record."""

    name: str
    text: str


class CompileKeys(TypedDict):
    """One compile that a trace has."""

    rank: int | None
    id: Annotated[str, msgspec.Meta(description="FRAME/COMPILE, as torch writes it")]
    function: str
    place: str
    error: str
    seconds: float | None
    graph_breaks: list[str]
    recompiled_because: list[str]
    has_ended: bool


class GraphProgramKeys(TypedDict):
    """One program that was made of a graph of the record."""

    source: Annotated[str, msgspec.Meta(description="the graph that it was made of")]
    text: str


class RecordDocument(SchemaVersion):
    """What ``reprokit capture FILES --json`` prints for files that torch wrote about a run."""

    from_record: Annotated[
        bool, msgspec.Meta(description="true: the verdict is that of the record")
    ]
    kind: str
    reason: str
    sources: list[str]
    skipped: Annotated[list[str], msgspec.Meta(description="files that could not be read, and why")]
    torch: str
    facts: list[RecordFactKeys]
    missing: list[str]
    error: str
    message: str
    compiles: list[CompileKeys]
    programs: list[GraphProgramKeys]
    answer: Annotated[
        AnswerText, msgspec.Meta(description="what the program did here; empty if none ran")
    ]
    why: str
    repro: Annotated[str, msgspec.Meta(description="the proved program; empty if there is none")]
    signature: Annotated[
        SignatureKeys | None,
        msgspec.Meta(description="that of the recorded exception; null without its traceback"),
    ]
    pack: PathText | None
    known: list[KnownKeys]
