"""The JSON documents about known failures."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from reprokit.cli.documents.study_documents import SchemaVersion

WorkaroundProved = Annotated[
    str, msgspec.Meta(description="the newest torch whose failure the workaround avoids")
]


class KnownKeys(TypedDict):
    """A known failure that the failure matches."""

    issue: Annotated[str, msgspec.Meta(description="OWNER/REPOSITORY#NUMBER")]
    url: str
    title: str
    how: Annotated[
        str, msgspec.Meta(description="same signature, or likely or similar by its traits")
    ]
    score: Annotated[float, msgspec.Meta(description="from 0 to 1")]
    shared: list[str]
    differs: list[str]
    state: Annotated[str, msgspec.Meta(description="open, closed or unknown")]
    component: str
    conditions: str
    first_bad: Annotated[str, msgspec.Meta(description="the oldest torch that is known to fail")]
    fixed_in: str
    workaround: str
    workaround_cost: str
    workaround_proved: WorkaroundProved
    origin: Annotated[str, msgspec.Meta(description="the catalogue; empty for that of reprokit")]


class KnownDocument(SchemaVersion):
    """What ``reprokit known PACK|SIGNATURE|TEXT --json`` prints."""

    matches: list[KnownKeys]


class KnownEntry(TypedDict):
    """An entry of a catalogue."""

    issue: str
    url: str
    title: str
    kind: str
    component: str
    state: str
    first_bad: str
    fixed_in: str
    workaround: str
    workaround_proved: WorkaroundProved
    origin: str


class KnownEntriesDocument(SchemaVersion):
    """What ``reprokit known --json`` prints."""

    entries: list[KnownEntry]


class ProvedEntryRow(TypedDict):
    """The run of an entry with one version of torch."""

    issue: str
    torch: str
    answer: Annotated[str, msgspec.Meta(description="fails, passes, different or no answer")]
    recorded: str | None
    signature: str
    title: str
    workaround: Annotated[str, msgspec.Meta(description="works, fails, or empty if not tried")]
    is_true: bool


class ProvedEntriesDocument(SchemaVersion):
    """What ``reprokit known --prove --json`` prints."""

    proved: list[ProvedEntryRow]
    is_true: bool
