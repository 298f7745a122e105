"""The JSON documents of the commands that read a pack, a machine or the zoo."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import msgspec

from reprokit.cli.documents.known_documents import KnownKeys
from reprokit.cli.documents.study_documents import (
    JsonObject,
    MissingRow,
    PathText,
    SchemaVersion,
)

FromPack = Annotated[
    JsonObject, msgspec.Meta(description="as it is in the pack, which a stranger may have written")
]


class ShowDocument(SchemaVersion):
    """What ``reprokit show --json`` prints."""

    pack: PathText
    verified: Annotated[bool, msgspec.Meta(description="all files match the manifest")]
    verdict: FromPack
    signature: FromPack
    report: FromPack
    trimmed: list[str]
    files: Annotated[dict[str, int], msgspec.Meta(description="bytes of each file")]
    known: list[KnownKeys]


class ShownFileDocument(SchemaVersion):
    """What ``reprokit show --file NAME --json`` prints."""

    pack: PathText
    file: str
    text: str


class ShownCompile(TypedDict):
    """One compile of a trace, with the parts that were asked for."""

    trace: str
    id: Annotated[str, msgspec.Meta(description="FRAME/COMPILE, as torch writes it")]
    function: str
    place: str
    error: str
    seconds: float | None
    parts: Annotated[
        dict[str, list[str]],
        msgspec.Meta(description="graphs, guards, recompiles, breaks or kernels, as asked for"),
    ]


class ShownTraceDocument(SchemaVersion):
    """What ``reprokit show --graphs --json`` prints, and with ``--guards`` and the like."""

    pack: PathText
    compiles: list[ShownCompile]


class ToolKeys(TypedDict):
    """One tool of the MCP server."""

    name: str
    description: str | None
    parameters: Annotated[
        dict[str, Any], msgspec.Meta(description="the JSON Schema of its arguments")
    ]


class ToolsDocument(SchemaVersion):
    """What ``reprokit mcp --json`` prints."""

    tools: list[ToolKeys]


class IssueField(TypedDict):
    """One field of the form."""

    field: str
    files: Annotated[list[str], msgspec.Meta(description="the files of the pack with its text")]
    characters: int
    path: Annotated[str | None, msgspec.Meta(description="the file below --output-dir")]


class IssueAttachment(TypedDict):
    """The pack as an attachment."""

    path: PathText
    bytes: int
    fits: Annotated[bool, msgspec.Meta(description="GitHub accepts its size")]


class IssueSearch(TypedDict):
    """A search for similar issues."""

    query: str
    url: str


class IssueDocument(SchemaVersion):
    """What ``reprokit issue --json`` prints."""

    pack: PathText
    is_bug: Literal[True]
    form: str
    begin_with: Annotated[
        str, msgspec.Meta(description="the first sentences of a comment; empty for an issue")
    ]
    title: str
    url: str
    fields: list[IssueField]
    attach: IssueAttachment
    search: IssueSearch
    known: Annotated[
        list[KnownKeys],
        msgspec.Meta(
            description="known failures; of the first one, if it is the same, the fields"
            " are a comment for its issue"
        ),
    ]


class WrittenTest(TypedDict):
    """A unit test of a repro."""

    style: Annotated[str, msgspec.Meta(description="pytorch or pytest")]
    file: Annotated[str, msgspec.Meta(description="a name for the file")]
    belongs_in: Annotated[str, msgspec.Meta(description="the file of PyTorch's tree, or empty")]
    path: PathText | None
    text: str


class WrittenTestsDocument(SchemaVersion):
    """What ``reprokit issue --as-test --json`` prints."""

    pack: PathText
    tests: list[WrittenTest]


class NoIssueDocument(SchemaVersion):
    """What ``reprokit issue --json`` prints if there is nothing to file; the exit code is 1."""

    pack: PathText
    is_bug: Literal[False]
    why: str


class EnvironmentDocument(SchemaVersion):
    """What ``reprokit env --json`` prints."""

    environment: Annotated[JsonObject, msgspec.Meta(description="the facts, by name")]
    collect_env: Annotated[str, msgspec.Meta(description="of torch.utils.collect_env")]
    missing: list[MissingRow]


class HookRow(TypedDict):
    """A private function of torch that reprokit uses."""

    symbol: str
    purpose: str
    since: str
    until: str
    expected: Annotated[bool, msgspec.Meta(description="this torch should have it")]
    problem: Annotated[str, msgspec.Meta(description="why torch lacks it; empty if it has it")]


class HooksDocument(SchemaVersion):
    """What ``reprokit env --hooks --json`` prints."""

    hooks: list[HookRow]


class ModelRow(TypedDict):
    """A model of the zoo."""

    name: str
    about: str
    parameters: int
    knobs: dict[str, Any]


class ModelsDocument(SchemaVersion):
    """What ``reprokit models --json`` prints."""

    models: list[ModelRow]


class ModelTypesDocument(SchemaVersion):
    """What ``reprokit models hf: --json`` prints."""

    transformers: str
    types: list[str]


_Class = TypedDict("_Class", {"class": str})


class ModelTypeDocument(SchemaVersion, _Class):
    """What ``reprokit models hf:TYPE --json`` prints."""

    name: str
    transformers: str
    parameters: int | None
    layers: Annotated[list[str], msgspec.Meta(description="the fields that --layers sets")]
    batch_size: int
    sequence_length: int
    inputs: Annotated[dict[str, list[int]], msgspec.Meta(description="shape of each input")]
    knobs: Annotated[JsonObject, msgspec.Meta(description="the fields of the configuration")]
