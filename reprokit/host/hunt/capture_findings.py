"""Captures findings of a hunt with the engine and the ledger of nightly runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from reprokit.host.hunt.outcomes import PROGRAMS_FOLDER, HuntFolder, Outcome
from reprokit.host.nightly import night_report, night_runner
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.night_report_model import BugReport
from reprokit.host.nightly.suite.cells import JobLimits, Suite, SuiteCell, SuiteEnvironment
from reprokit.host.system import files

LEDGER_FILE, CAPTURED_FILE = "ledger.sqlite", "captured.jsonl"
MAX_OF_GROUP = 2
"""How many findings of a group are captured while none of them is confirmed."""
LIMITS = JobLimits(timeout_s=300.0, budget_s=150.0, retries=0)
ENVIRONMENT = "default"
Say = Callable[[str], None]


def pending_findings(hunt: HuntFolder) -> list[Outcome]:
    """Return the findings to capture next: one of each group without a confirmed one."""
    captured = captured_findings(hunt)
    pending = []
    for members in hunt.groups().values():
        answers = [captured[one.number] for one in members if one.number in captured]
        left = [one for one in members if one.number not in captured]
        if left and not any(answers) and len(answers) < MAX_OF_GROUP:
            pending.append(left[0])
    return pending


def captured_findings(hunt: HuntFolder) -> dict[int, bool]:
    """Return the numbers of the captured findings, and whether the capture confirmed them."""
    lines = files.read_text(hunt.path / CAPTURED_FILE).splitlines()
    rows = map(files.parse_json_object, lines)
    return {int(row["number"]): bool(row["is_confirmed"]) for row in rows if row}


def capture_findings(hunt: HuntFolder, chosen: Sequence[Outcome], say: Say, show: Say) -> bool:
    """Capture, reduce and prove findings, one at a time; return whether that was interrupted.

    Raises:
        NightFailed: the ledger or the folder cannot be written.
    """
    cells = tuple(
        SuiteCell(target_of(one), settings={"environment": ENVIRONMENT}, limits=LIMITS)
        for one in chosen
    )
    environment = SuiteEnvironment(ENVIRONMENT, hunt.plan.python)
    text = json.dumps([cell.key for cell in cells])
    suite = Suite(
        hunt.path / "hunt.toml", "hunt", text, cells, {ENVIRONMENT: environment}, keep_nights=10**6
    )
    result = night_runner.run_night(suite, cells, hunt.path, None, "local", 1, say, show)
    confirmed = targets_of_bugs(hunt.path)
    if not result["is_interrupted"]:
        for one in chosen:
            row = {"number": one.number, "is_confirmed": target_of(one) in confirmed}
            files.append_json(hunt.path / CAPTURED_FILE, row)
    return result["is_interrupted"]


def target_of(outcome: Outcome) -> str:
    """Return the target of a finding, as an argument of capture in the folder of the hunt."""
    return f"{PROGRAMS_FOLDER}/{outcome.source}_{outcome.number:06d}.py:make"


def bugs_of_hunt(path: Path) -> list[BugReport]:
    """Return the bugs in the ledger of a hunt."""
    if not (path / LEDGER_FILE).exists():
        return []
    with ledger_file.open_ledger(path / LEDGER_FILE) as store:
        groups = night_report.make_report(store, None, path)["groups"]
    return [bug for name in ("new", "regressed", "flaky", "open") for bug in groups[name]]


def targets_of_bugs(path: Path) -> dict[str, BugReport]:
    """Return the targets that have shown a bug, with it."""
    return {row["target"]: bug for bug in bugs_of_hunt(path) for row in bug["matrix"]["rows"]}
