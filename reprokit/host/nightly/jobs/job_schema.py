"""The schema of the values in the files of a job, in an import and in a ledger.

Key insight: a value is converted, not only checked. A value that leaves this module has the fields
of the schema and no others, each of its type and within its bounds, so no other module has to check
it again.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from reprokit.core.records import bounded_json
from reprokit.host.system import files, host_log

MAX_BYTES, MAX_VALUES = 16 << 20, 1_000_000
"""Limits of one file of a job, or one line of an import."""
MAX_REASON_CHARS = 300
"""Maximum length of a reason, which may have words of an untrusted file."""

Id = Annotated[str, Meta(max_length=64, pattern=r"\A[0-9A-Za-z._-]*\Z")]
"""The id of a signature or of a nightly run; empty if there is none."""
FileName = Annotated[str, Meta(max_length=128, pattern=r"\A[0-9A-Za-z_][0-9A-Za-z._-]*\Z")]
"""The name of a file: not a path, and not a hidden file."""
Word = Annotated[str, Meta(max_length=200)]
Line = Annotated[str, Meta(max_length=20_000)]
Key = Annotated[str, Meta(max_length=200_000)]
Text = Annotated[str, Meta(max_length=4 << 20)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Flag = Literal[0, 1]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Bytes = Annotated[float, Meta(ge=0, le=1e18)]
Clock = Annotated[float, Meta(ge=0, le=253_402_214_400)]
"""Seconds since the epoch, up to the year 9999, the last that ``datetime`` has."""
Traits = dict[Word, Line | Annotated[list[Line], Meta(max_length=200)] | float | bool | None]
Phases = dict[Line, Seconds]
Settings = dict[Word, Any]
"""The settings of a cell; a suite may have any."""
Number = int | float
"""A number that keeps its JSON form when it is written again."""


class FailsSchema(ValueError):
    """A value does not agree with the schema; the message says why in one short line."""


class JobSpec(Struct, kw_only=True):
    """What one job has to do."""

    schema: Literal[1]
    key: Key
    """The key of the cell."""
    words: list[str]
    """The arguments of ``reprokit capture``, without the target."""
    target: list[str]
    """The arguments that name the target."""
    python: str
    cwd: str
    retries: int
    """How many times a failure is captured again."""
    budget_s: Number
    limit_s: Number
    """The limit of each command of the job."""
    expect: list[str]
    """The kinds of verdicts that are expected."""
    warms: bool
    """The captures share a cache of the C++ compiler."""
    environment: dict[str, str]
    known: list[str]
    """Signatures that are not minimized."""
    settled: list[str]
    """Signatures that are not captured again."""
    limits: dict[str, Number]
    """Costs above which a healthy capture is repeated."""


class JobVerdict(Struct):
    kind: Word | None = None
    phase: Line | None = None
    cause: Line | None = None
    reason: Line | None = None


class JobSignature(Struct):
    id: Id | None = None
    title: Line = ""
    algorithm: Count | None = None


class JobAttempt(Struct):
    """One capture of a job."""

    verdict: JobVerdict
    signature: JobSignature
    traits: Traits
    phases: Phases
    seconds: Seconds | None = None
    compile_s: Seconds | None = None
    peak_rss_bytes: Bytes | None = None
    run_dir: Line | None = None
    pack: Line | None = None
    torch: Word | None = None
    triton: Word | None = None
    problem: Line = ""
    is_refused: bool = False
    is_interrupted: bool = False


class JobRepro(Struct):
    """The result of a minimization."""

    signature: Id | None = None
    text: Text | None = None
    lines: Count | None = None
    pack: Line | None = None
    says: Line | None = None
    traits: Traits = {}
    located: JobSignature | None = None
    problem: Line | None = None


class JobResult(Struct):
    """The result of a job."""

    schema: Literal[1]
    key: Key
    expect: Annotated[list[Word], Meta(max_length=100)]
    attempts: Annotated[list[JobAttempt], Meta(max_length=100)]
    problem: Line
    minimized: JobRepro | None = None
    seconds: Seconds | None = None
    refused: Annotated[list[Line], Meta(max_length=100)] = []
    """Files of the job that do not agree with the schema."""


class PlannedJob(Struct):
    """One job of a plan."""

    folder: FileName
    key: Key
    target: Key
    settings: Settings
    tags: list[Line]
    label: Key
    cores: Count
    memory_bytes: Bytes
    gpus: Count
    limit_s: Annotated[float, Meta(ge=0, le=1e12)]
    expected_s: Seconds | None = None


class NightPlan(Struct):
    """The jobs of a nightly run."""

    uid: Word
    suite: Line
    digest: Id
    started: Clock
    jobs: Annotated[list[PlannedJob], Meta(max_length=100_000)]


class Submission(Struct):
    """One line of the journal of submissions to a cluster."""

    name: Line
    folders: list[FileName] | None = None
    ids: list[Id] | None = None


Shape = TypeVar("Shape", bound=Struct)


def parse_strict_json(data: bytes | str, max_bytes: int = MAX_BYTES) -> Any:
    """Parse a JSON text of bounded size and depth.

    Raises:
        FailsSchema: the text is not JSON, is too large, or has a key twice.
    """
    if len(data) > max_bytes:
        raise FailsSchema(f"it has more than {max_bytes} bytes")
    try:
        return bounded_json.parse_json(data, max_bytes, MAX_VALUES, is_strict=True)
    except ValueError as problem:  # also a text that is not UTF-8
        raise FailsSchema(_short(problem)) from None


def convert_to_struct(value: Any, shape: type[Shape]) -> Shape:
    """Return the value, converted by the schema; raises FailsSchema."""
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise FailsSchema(_short(problem)) from None


def struct_to_json(value: Struct) -> dict[str, Any]:
    """Return the value as dictionaries, lists and scalars."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return fields


def read_struct(path: Path, shape: type[Shape], max_bytes: int = MAX_BYTES) -> Shape | None:
    """Return the value of a JSON file; None if there is no file.

    Raises:
        FailsSchema: the file does not agree with the schema, or is a link, a pipe or a folder.
    """
    try:
        with files.open_regular_file(path) as file:
            data = files.read_at_most(file, max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        why = {
            errno.ELOOP: "it is a symbolic link",
            errno.EINVAL: "it is not a plain file",
            errno.ENXIO: "it is not a plain file",
        }
        raise FailsSchema(
            why.get(problem.errno or 0, f"it cannot be read ({problem.strerror})")
        ) from None
    return convert_to_struct(parse_strict_json(data, max_bytes), shape)


def is_file_name(name: str) -> bool:
    """Return whether reprokit may have given this name to a file."""
    try:
        msgspec.convert(name, FileName)
    except ValueError as problem:  # also for a name that is not Unicode
        host_log.log_ignored(problem)
        return False
    return True


def _short(problem: Exception) -> str:
    words = " ".join(str(problem).encode("utf-8", "replace").decode("utf-8").split())
    return words if len(words) <= MAX_REASON_CHARS else words[: MAX_REASON_CHARS - 3] + "..."
