"""The result of a hunt: its counts, and its families of failures."""

from __future__ import annotations

import re
from typing import TypedDict

from reprokit.host.hunt import capture_findings
from reprokit.host.hunt.capture_findings import CapturedFinding
from reprokit.host.hunt.outcomes import HuntFolder


class FamilyMember(TypedDict):
    """A group of programs that look alike, of which one is captured."""

    program: str
    findings: int
    """How many programs are in the group."""
    signature: str
    repro_lines: int | None
    """Lines of the proved repro; None if there is none."""
    says: str
    """What became of the reduction, in words."""
    pack: str
    issue: str
    """The file with the text of the issue."""
    known: list[str]
    """The known failures that it is like, one sentence each."""


class Family(TypedDict):
    """Failures with the same kind, phase and cause."""

    kind: str
    phase: str
    title: str
    """The signature without numbers. Where it names neither an operator nor a pass, also the words
    of the shortened programs.
    """
    is_known: bool
    """The catalogue has this failure. A signature without an operator or a pass is not enough."""
    findings: int
    members: list[FamilyMember]


class HuntDocument(TypedDict):
    """What ``reprokit hunt --json`` prints."""

    schema: int
    sources: list[str]
    seed: int
    folder: str
    targets: int
    cpu_s: float
    """CPU seconds of the targets, without the captures."""
    counts: dict[str, int]
    """How many targets had each outcome."""
    by_source: dict[str, dict[str, int]]
    groups: int
    """Groups of findings that look alike."""
    unconfirmed: list[str]
    """Captured programs in which capture saw no failure of the compiler."""
    pending: list[str]
    """Programs that are not captured yet."""
    families: list[Family]
    is_interrupted: bool
    exit_code: int


def describe_hunt(hunt: HuntFolder, is_interrupted: bool) -> HuntDocument:
    """Return the result of a hunt so far."""
    captured = capture_findings.captured_findings(hunt)
    bugs = capture_findings.bugs_by_signature(hunt)
    outcomes = {one.number: one for one in hunt.outcomes}
    sizes = {one.number: len(members) for members in hunt.groups().values() for one in members}
    families: dict[tuple[str, str, str], Family] = {}
    for one in captured.values():
        if not one.is_confirmed:
            continue
        title = family_title(one, outcomes[one.number].group)
        family = families.setdefault(
            (one.kind, one.phase, title),
            Family(
                kind=one.kind,
                phase=one.phase,
                title=title,
                is_known=False,
                findings=0,
                members=[],
            ),
        )
        bug = bugs.get(one.signature)
        family["findings"] += sizes[one.number]
        family["is_known"] |= bug is not None and bool(bug["decision"]) and not one.is_vague
        family["members"].append(
            {
                "program": str(hunt.program_of(outcomes[one.number])),
                "findings": sizes[one.number],
                "signature": one.signature,
                "repro_lines": one.lines,
                "says": one.says,
                "pack": one.pack,
                "issue": one.issue,
                "known": bug["known"] if bug else [],
            }
        )
    by_source: dict[str, dict[str, int]] = {}
    for outcome in hunt.outcomes:
        row = by_source.setdefault(outcome.source, {})
        row[outcome.kind] = row.get(outcome.kind, 0) + 1
    is_new = any(not family["is_known"] for family in families.values())
    return {
        "schema": 1,
        "sources": list(hunt.plan.sources),
        "seed": hunt.plan.seed,
        "folder": str(hunt.path),
        "targets": len(hunt.outcomes),
        "cpu_s": round(sum(one.cpu_s for one in hunt.outcomes), 1),
        "counts": hunt.counts,
        "by_source": by_source,
        "groups": len(hunt.groups()),
        "unconfirmed": [
            str(hunt.program_of(outcomes[one.number]))
            for one in captured.values()
            if not one.is_confirmed
        ],
        "pending": [str(hunt.program_of(one)) for one in capture_findings.pending_findings(hunt)],
        "families": sorted(families.values(), key=lambda row: (row["is_known"], -row["findings"])),
        "is_interrupted": is_interrupted,
        "exit_code": 130 if is_interrupted else int(is_new),
    }


def family_title(captured: CapturedFinding, group: str) -> str:
    """Return what the captures of a family have in common, without numbers."""
    title = re.sub(r"\d+", "N", captured.title)
    return f"{title}: {group}" if captured.is_vague else title
