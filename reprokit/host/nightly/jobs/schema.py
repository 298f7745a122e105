"""The schema of all that a job, an import or a ledger may hold. Every value from there is checked
against it first.

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
from reprokit.host.system import files

MOST_BYTES, MOST_VALUES = 16 << 20, 1_000_000
"""Limits of one file of a job, or one line of an import."""
MOST_SAID = 300
"""Maximum length of a reason, some of whose words a stranger chooses."""

Id = Annotated[str, Meta(max_length=64, pattern=r"\A[0-9A-Za-z._-]*\Z")]
"""The id of a signature or a night; empty if there is none."""
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


class FailsSchema(ValueError):
    """A value that does not agree with the schema; the message is one short line with the
    reason.
    """


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
    settings: dict[Word, Any]
    tags: list[Line]
    label: Key
    cores: Count
    memory_bytes: Bytes
    gpus: Count
    limit_s: Annotated[float, Meta(ge=0, le=1e12)]
    expected_s: Seconds | None = None


class NightPlan(Struct):
    """The jobs that a night has to run."""

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


def parse_as(data: bytes | str, most_bytes: int = MOST_BYTES) -> Any:
    """The value of a JSON text of bounded size and depth, with no key twice; raises Refused."""
    if len(data) > most_bytes:
        raise FailsSchema(f"it has more than {most_bytes} bytes")
    try:
        return bounded_json.parse_json(data, most_bytes, MOST_VALUES, is_strict=True)
    except ValueError as problem:  # also a text that is not UTF-8
        raise FailsSchema(_short(problem)) from None


def convert_as(value: Any, shape: type[Shape]) -> Shape:
    """The value, converted by the schema; raises Refused."""
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise FailsSchema(_short(problem)) from None


def plain_value(value: Struct) -> dict[str, Any]:
    """The value as dictionaries, lists and scalars."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def read_as(path: Path, shape: type[Shape], most_bytes: int = MOST_BYTES) -> Shape | None:
    """The value of a JSON file; None if there is no file; raises Refused for all else, such as a
    link or a pipe.
    """
    try:
        with files.open_plain(path) as file:
            data = files.read_most(file, most_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        why = {
            errno.ELOOP: "it is a symbolic link",
            errno.EINVAL: "it is no plain file",
            errno.ENXIO: "it is no plain file",
        }
        raise FailsSchema(
            why.get(problem.errno or 0, f"it cannot be read ({problem.strerror})")
        ) from None
    return convert_as(parse_as(data, most_bytes), shape)


def is_file_name(name: str) -> bool:
    """Whether a name is one that reprokit may have given to a file."""
    try:
        msgspec.convert(name, FileName)
    except ValueError:  # also for a name that is not Unicode
        return False
    return True


def _short(problem: Exception) -> str:
    words = " ".join(str(problem).encode("utf-8", "replace").decode("utf-8").split())
    return words if len(words) <= MOST_SAID else words[: MOST_SAID - 3] + "..."
