"""The types of the report of one run, which are those of ``report.json`` in a pack."""

from __future__ import annotations

from typing import Any, TypedDict


class FlameNode(TypedDict):
    """A frame of the sampled stacks, below its caller."""

    name: str
    place: str
    """The file and line of the first sample; empty for a process."""
    samples: int
    children: list[FlameNode]


class Span(TypedDict):
    """A phase of one thread, in seconds from the start of the run."""

    phase: str
    event: str
    start: float
    end: float
    is_open: bool
    """The phase had not ended at the end of the run."""


class Lane(TypedDict):
    """The phases of one thread."""

    pid: int
    name: str
    spans: list[Span]


class Series(TypedDict):
    """A measurement over time."""

    name: str
    unit: str
    """``bytes``, ``share``, or empty for a number."""
    points: list[tuple[float, float]]


class PhaseSeconds(TypedDict):
    """The seconds of a phase over all lanes."""

    phase: str
    seconds: float


class Timeline(TypedDict):
    """The phases of all threads and the measurements of a run."""

    seconds: float
    lanes: list[Lane]
    lanes_left_out: int
    series: list[Series]
    phases: list[PhaseSeconds]


class FrameRow(TypedDict):
    """A frame of a stack."""

    function: str
    place: str
    has_moved: bool | None
    """Whether the frame changed between the last dumps; None if they are not compared."""


class StackRow(TypedDict):
    """The last stack of a thread or of a group of ranks."""

    who: str
    told: str
    frames: list[FrameRow]


class ProcessRow(TypedDict):
    """The state of a process at the end of the run."""

    pid: int
    ppid: int
    states: str
    want: float | None
    rss_bytes: int
    threads: int
    waits: str
    command: str


class ToolRow(TypedDict):
    """The result of one dump."""

    round: int
    tool: str
    pid: int
    said: str


class AnswerRow(TypedDict):
    """The answer of a shorter run."""

    question: str
    answer: str
    seconds: float


class Version(TypedDict):
    """The version of one part of the environment."""

    name: str
    version: str


class ReportedProgram(TypedDict):
    """The program of a pack."""

    file: str
    """``repro.py``, ``candidate.py``, or empty if there is no program."""
    text: str
    about: str
    """A description in one line."""
    why_unproven: str
    """Why there is no repro; empty for a repro, and if nothing failed."""


class ReportedDecision(TypedDict):
    """What to do with the failure: the fields of ``core.triage.decision.Decision``."""

    action: str
    why: str
    issue: str
    url: str
    avoids: str
    similar: list[str]
    form: str
    """``OWNER/REPOSITORY`` of the issue form; empty if there is nothing to file."""


class ReportHead(TypedDict):
    """What a reader needs first; the rest of the report is the evidence."""

    users_line: str
    """``FILE:LINE in FUNCTION: TEXT`` of the user's code; empty if it is not known."""
    compiling: str
    """``FUNCTION in FILE`` that Dynamo traced last; empty if it is not known."""
    program: ReportedProgram
    avoids: list[str]
    """Ways to compile with which the program passes, the smallest change first."""
    advice: str
    """What to change where the cause is the program's or a limit; nobody tried it. May be empty."""
    command: str
    versions: list[Version]
    started: str
    """``YYYY-MM-DD HH:MM UTC``; empty if it is not known."""
    decision: ReportedDecision


class WaitingLine(TypedDict):
    """A line at which a thread of a hang waits."""

    who: str
    """Which thread, and that it waits."""
    place: str
    """``FILE:LINE in FUNCTION``."""
    code: str


class ReportModel(TypedDict):
    """The whole report."""

    schema: int
    head: ReportHead
    title: str
    signature: str
    kind: str
    phase: str | None
    cause: str | None
    reason: str
    explain: str
    detail: str
    responsible: str
    responsible_because: list[str]
    not_filed: str
    also: list[str]
    path: list[str]
    waits: list[WaitingLine]
    work: dict[str, str]
    evidence: list[str]
    eager: str
    growth: dict[str, Any]
    """``growth.json``; empty if the run is not part of a scale measurement."""
    ablation: dict[str, Any]
    """``ablation.json``; empty if no ablation step ran."""
    answers: list[AnswerRow]
    timeline: Timeline
    flame: FlameNode
    stacks: list[StackRow]
    processes: list[ProcessRow]
    tools: list[ToolRow]
