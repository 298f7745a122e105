"""The report of a nightly run: the types of its JSON, its exit code and its summary."""

from __future__ import annotations

from typing import TypedDict


class NightName(TypedDict):
    """A nightly run, as other parts of the report name it."""

    name: str
    started: str


class NightSummary(NightName):
    """The nightly run of the report."""

    state: str
    planned: int
    runs: int


class _Row(TypedDict):
    target: str
    settings: str


class ReportedRun(_Row, total=False):
    """A run in a list of the report; ``why`` is the reason of a lost run."""

    kind: str
    why: str
    is_news: bool


class SignatureTitle(TypedDict):
    """A signature of a bug."""

    id: str
    title: str


class TargetStates(TypedDict):
    """A row of the matrix of a bug: the state of a target for each column."""

    target: str
    states: list[str]


class BugMatrix(TypedDict):
    """The targets that showed a bug, by the settings of their cells."""

    columns: list[str]
    rows: list[TargetStates]
    left_out: int


class CostHistory(TypedDict):
    """The costs of a cell with a regression, from the oldest."""

    what: str
    costs: list[float]


class LastHealthyRun(TypedDict):
    """The last healthy run before a bug was first seen."""

    night: str
    torch: str
    then_torch: str


class BugReport(TypedDict):
    """A bug in the report."""

    id: int
    status: str
    title: str
    kind: str
    phase: str
    cause: str
    reason: str
    muted: str | None
    first: NightName | None
    last: NightName | None
    hits: int
    runs: int
    tonight: int
    is_news: bool
    is_tonight: bool
    torch: list[str]
    signatures: list[SignatureTitle]
    decision: str
    """What to do instead of a new issue, as a clause; empty if there is nothing else to do."""
    known: list[str]
    """The known failures that it matches, one sentence each."""
    trend: list[int]
    matrix: BugMatrix
    history: CostHistory | None
    healthy_before: LastHealthyRun | None
    repro: str
    repro_lines: int | None
    pack: str


class HeatState(TypedDict):
    """One run of the heat map."""

    night: int
    kind: str
    """A kind of verdict or of a regression, ``lost``, or ``other`` for any other word."""
    is_expected: bool
    reports: list[str]
    """The reports of its captures, relative to the page."""


class HeatRow(TypedDict):
    """The runs of a cell, the oldest first; None for a nightly run without the cell."""

    cell: int
    target: str
    settings: str
    states: list[HeatState | None]


class HeatMap(TypedDict):
    """The runs of all cells in the last nightly runs."""

    nights: list[str]
    rows: list[HeatRow]
    left_out: int


class MergeProposal(TypedDict):
    """Two bugs that may be the same."""

    bugs: list[int]
    titles: list[str]
    score: float
    shared: list[str]


class RefusedFiles(TypedDict):
    """The number of refused files, and the first reasons."""

    count: int
    reasons: list[str]


class ReportBody(TypedDict):
    """The report without what is derived from it."""

    schema: int
    suite: str
    night: NightSummary
    before: str | None
    nights: list[str]
    torch: list[str]
    healthy: int
    groups: dict[str, list[BugReport]]
    surprises: list[ReportedRun]
    in_eager: list[ReportedRun]
    """Runs that fail without torch.compile too, which are no bugs of the compiler."""
    unknown: list[ReportedRun]
    lost: list[ReportedRun]
    proposals: list[MergeProposal]
    costs: dict[str, float]
    refused: RefusedFiles


class NightReport(ReportBody):
    """The report of a nightly run."""

    exit_code: int
    sentence: str
    heat_map: HeatMap


class NightResult(NightReport):
    """The report of a nightly run that has just ended, with the paths of its files."""

    is_interrupted: bool
    report: str
    digest: str


def exit_code(report: ReportBody) -> int:
    """Return 0 for no news, 1 for a new or regressed bug, 3 for lost runs."""
    if report["lost"]:
        return 3
    news = [
        bug for group in ("new", "regressed") for bug in report["groups"][group] if bug["is_news"]
    ]
    return 1 if news or any(row["is_news"] for row in report["surprises"]) else 0


def summary_sentence(report: ReportBody) -> str:
    """Return the summary of the report in one line."""
    groups = report["groups"]
    counts = {name: len(groups[name]) for name in ("flaky", "open")}
    counts = {
        **{n: sum(b["is_news"] for b in groups[n]) for n in ("new", "regressed")},
        "fixed": sum(b["is_tonight"] for b in groups["fixed"]),
        **counts,
    }
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    if report["lost"]:
        parts.append(f"{len(report['lost'])} lost")
    if report["in_eager"]:
        parts.append(f"{len(report['in_eager'])} without torch.compile too")
    if report["surprises"]:
        parts.append(f"{len(report['surprises'])} not as expected")
    if report["refused"]["count"]:
        parts.append(f"{report['refused']['count']} refused")
    night = report["night"]
    return (
        f"{', '.join(parts) or 'nothing new'}; {report['healthy']} of"
        f" {night['planned'] or night['runs']} healthy"
    )
