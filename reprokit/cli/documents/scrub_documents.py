"""The JSON documents of ``reprokit scrub``."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from reprokit.cli.documents.known_documents import KnownKeys
from reprokit.cli.documents.study_documents import PathText, SchemaVersion

AnswerText = Annotated[
    str, msgspec.Meta(description="fails, passes, different (another failure), or cannot tell")
]


class ReportedKeys(TypedDict):
    """The failure that the issue reports; empty where its text does not say it."""

    kind: str
    error: Annotated[str, msgspec.Meta(description="the type of the exception")]
    message: str
    torch: str


class IssueProgramKeys(TypedDict):
    """The program of the issue, and how it is run."""

    text: str
    lines: Annotated[list[int], msgspec.Meta(description="where its blocks begin in the text")]
    added: Annotated[list[str], msgspec.Meta(description="lines that reprokit added")]
    variables: dict[str, str]
    arguments: list[str]


class IssueRunRow(TypedDict):
    """The answer of one torch."""

    torch: str
    answer: AnswerText
    why: str
    runs: Annotated[int, msgspec.Meta(description="how many runs gave this answer")]


class UnreadIssueDocument(SchemaVersion):
    """What ``reprokit scrub --json`` prints if the text has no program that can be run."""

    answer: AnswerText
    why: str
    runs: list[IssueRunRow]
    comment: PathText | None


class ScrubDocument(UnreadIssueDocument):
    """What ``reprokit scrub --json`` prints."""

    title: str
    reported: ReportedKeys
    program: IssueProgramKeys
    jail: Annotated[str, msgspec.Meta(description="bubblewrap, user namespaces, or empty for none")]
    pack: PathText | None
    known: list[KnownKeys]
