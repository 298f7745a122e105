"""The JSON documents of the commands of ``reprokit nightly``."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from reprokit.cli.documents.error_documents import ErrorDocument
from reprokit.cli.documents.study_documents import PathText, SchemaVersion


class InitDocument(SchemaVersion):
    """What ``reprokit nightly init --json`` prints."""

    suite: PathText


class FailedNightDocument(ErrorDocument):
    """What ``reprokit nightly run --json`` prints if the nightly run cannot go on."""

    exit_code: int
    problem: str


class MergeDocument(SchemaVersion):
    """What ``reprokit nightly merge --json`` prints."""

    bug: int
    merged: list[int]


class SplitDocument(SchemaVersion):
    """What ``reprokit nightly split --json`` prints."""

    bug: int
    split: int


class MuteDocument(SchemaVersion):
    """What ``reprokit nightly mute --json`` prints."""

    bug: int
    is_muted: bool


class _Type(TypedDict):
    type: str


class ExportedRow(_Type, total=False):
    """One line that ``reprokit nightly export`` prints; docs/ledger.md has the other keys."""

    schema: int


class CatalogueDocument(SchemaVersion):
    """What ``reprokit nightly export --catalogue FOLDER --json`` prints."""

    catalogue: PathText
    issues: Annotated[list[str], msgspec.Meta(description="OWNER/REPOSITORY#NUMBER or ledger#BUG")]


class ImportDocument(SchemaVersion):
    """What ``reprokit nightly import --json`` prints."""

    added: Annotated[dict[str, int], msgspec.Meta(description="number of new rows by type")]
    refused: list[str]


class PruneDocument(SchemaVersion):
    """What ``reprokit nightly prune --json`` prints."""

    folders: int
    packs: int
    size_bytes: int
