"""The result of a hunt: its counts, and its families of failures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypedDict

from reprokit.host.hunt import capture_findings
from reprokit.host.hunt.capture_findings import target_of
from reprokit.host.hunt.outcomes import HuntFolder
from reprokit.host.nightly.night_report_model import BugReport


class FamilyMember(TypedDict):
    """A bug of a family: what ``reprokit capture`` made of one or more findings."""

    title: str
    signature: str
    targets: list[str]
    repro_lines: int | None
    """Lines of its proved repro; None if there is none."""
    pack: str
    known: list[str]
    """The known failures that it matches, one sentence each."""


class Family(TypedDict):
    """Failures with the same kind, phase and cause."""

    kind: str
    phase: str
    cause: str
    is_known: bool
    findings: int
    """How many targets show it, with those that are only like a captured one."""
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
    """Groups of findings that look alike, of which at least one is captured."""
    unconfirmed: list[str]
    """Captured programs in which capture saw no failure of the compiler."""
    pending: list[str]
    """Programs that are not captured yet."""
    families: list[Family]
    is_interrupted: bool
    exit_code: int


def describe_hunt(hunt: HuntFolder, is_interrupted: bool) -> HuntDocument:
    """Return the result of a hunt so far."""
    bugs = capture_findings.bugs_of_hunt(hunt.path)
    captured = capture_findings.captured_findings(hunt)
    names = {target_of(one): len(members) for members in hunt.groups().values() for one in members}
    families: dict[tuple[str, str, str], Family] = {}
    for bug in bugs:
        key = (bug["kind"], bug["phase"], plain_cause(bug["cause"]))
        family = families.setdefault(
            key,
            {"kind": key[0], "phase": key[1], "cause": key[2], "is_known": False, "findings": 0,
             "members": []},
        )  # fmt: skip
        member = _member(bug, hunt.path)
        family["members"].append(member)
        family["findings"] += sum(names.get(target, 0) for target in member["targets"])
        family["is_known"] |= bool(member["known"])
    by_source: dict[str, dict[str, int]] = {}
    for one in hunt.outcomes:
        row = by_source.setdefault(one.source, {})
        row[one.kind] = row.get(one.kind, 0) + 1
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
            str(hunt.program_of(one)) for one in hunt.outcomes if captured.get(one.number) is False
        ],
        "pending": [str(hunt.program_of(one)) for one in capture_findings.pending_findings(hunt)],
        "families": sorted(families.values(), key=lambda row: (row["is_known"], -row["findings"])),
        "is_interrupted": is_interrupted,
        "exit_code": 130 if is_interrupted else int(is_new),
    }


def plain_cause(cause: str) -> str:
    """Return a cause without numbers, which differ between programs of one cause."""
    return re.sub(r"\d+", "N", cause)


def _member(bug: BugReport, folder: Path) -> FamilyMember:
    return {
        "title": bug["title"],
        "signature": bug["signatures"][0]["id"] if bug["signatures"] else "",
        "targets": [row["target"] for row in bug["matrix"]["rows"]],
        "repro_lines": bug["repro_lines"],
        "pack": str(folder / bug["pack"]) if bug["pack"] else "",
        "known": bug["known"],
    }
