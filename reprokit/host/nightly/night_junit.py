"""Write a nightly run as JUnit XML, which CI systems read: one test case for each cell."""

from __future__ import annotations

import datetime
import json
import sqlite3
from pathlib import Path
from xml.etree import ElementTree as ET

from reprokit.core.judge.stacks.location import plural
from reprokit.core.redaction.plain import clean_text
from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs.job_result import HEALTHY, IN_EAGER, NO_BUG
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.nightly.suite.cells import settings_words
from reprokit.host.system import files, private_names

MAX_VALUE_CHARS = 4_000
NOT_JUDGED = "the run could not be judged"


def write_junit(ledger: Ledger, path: Path) -> Path:
    """Write the last nightly run to ``path``, and return the path.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        return files.write_atomically(path, junit_text(ledger))
    except OSError as problem:
        raise BadInput(
            f"cannot write {path}: {problem.strerror}; name a different file with --junit"
        ) from problem


def junit_text(ledger: Ledger) -> str:
    """Return the XML of the last nightly run, without private text.

    A cell fails if it has a failure that the suite does not expect and that is not muted, or if the
    suite expects a failure and it is healthy. A cell without a result, or with one that cannot be
    judged, is an error. A cell with only muted bugs is skipped.

    Raises:
        BadInput: the ledger has no nightly run.
    """
    night = ledger.fetch_one("SELECT * FROM night ORDER BY id DESC LIMIT 1")
    if night is None:
        raise BadInput(f"the ledger {ledger.path} has no nightly run")
    runs = ledger.fetch_all(
        "SELECT run.*, cell.target, cell.settings FROM run JOIN cell ON cell.id = run.cell WHERE"
        " night = ? ORDER BY cell.target, cell.id",
        night["id"],
    )
    seen: dict[int, list[sqlite3.Row]] = {}
    for row in ledger.fetch_all(
        "SELECT x.cell, x.k, x.n, x.is_expected, s.id, s.title, b.id AS bug, b.status, b.muted"
        " FROM sighting x JOIN signature s ON s.id = x.signature JOIN bug b ON b.id = s.bug WHERE"
        " x.night = ? ORDER BY s.id",
        night["id"],
    ):
        seen.setdefault(row["cell"], []).append(row)
    started = datetime.datetime.fromtimestamp(night["started"], datetime.timezone.utc)
    suite = ET.Element(
        "testsuite", name=_text(night["suite"]), timestamp=f"{started:%Y-%m-%dT%H:%M:%S}"
    )
    environments = {json.loads(run["settings"]).get("environment") for run in runs}
    hidden = ("environment",) if len(environments) < 2 else ()
    for run in runs:
        words = " ".join(settings_words(json.loads(run["settings"]), hidden))
        case = _case(suite, night["suite"], f"{run['target']} {words}", run["seconds"] or 0.0)
        _add_outcome(case, run, seen.get(run["cell"], []))
    missing = night["planned"] - len(runs)
    if missing > 0:
        case = _case(suite, night["suite"], plural(missing, "more cell"), 0.0)
        _add(case, "error", "not run", "the nightly run has no result of these cells")
    cases = suite.findall("testcase")
    totals = {
        "tests": str(len(cases)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": str(len(suite.findall("testcase/error"))),
        "skipped": str(len(suite.findall("testcase/skipped"))),
        "time": f"{sum(float(case.attrib['time']) for case in cases):.3f}",
    }
    suite.attrib.update(totals)
    root = ET.Element("testsuites", {"name": "reprokit nightly", **totals})
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _case(suite: ET.Element, name: str, cell: str, seconds: float) -> ET.Element:
    words = {"classname": _text(name), "name": _text(cell.strip()), "time": f"{seconds:.3f}"}
    return ET.SubElement(suite, "testcase", words)


def _add_outcome(case: ET.Element, run: sqlite3.Row, sightings: list[sqlite3.Row]) -> None:
    """Add why a cell did not pass; nothing to a cell that passed."""
    failures = [s for s in sightings if not s["is_expected"]]
    loud = [s for s in failures if s["muted"] is None]
    details = "\n".join(
        f"{s['title']}\nsignature {s['id']}, bug {s['bug']} ({s['status'] or 'new'}), in"
        f" {s['k']} of {s['n']} runs"
        for s in loud or failures
    )
    if loud:
        _add(case, "failure", loud[0]["title"], details, str(loud[0]["title"]).partition(":")[0])
    elif failures:
        reasons = "; ".join(f"bug {s['bug']}: {s['muted']}" for s in failures)
        _add(case, "skipped", f"muted: {reasons}", details)
    elif not run["kind"]:
        _add(case, "error", run["problem"] or "the job has no result", "", "lost")
    elif run["kind"] == HEALTHY and not run["is_expected"]:
        text = "healthy, though the suite expects a failure"
        _add(case, "failure", text, "", "not as expected")
    elif run["kind"] in NO_BUG - {HEALTHY} and not run["is_expected"]:
        why = "it fails without torch.compile too" if run["kind"] == IN_EAGER else NOT_JUDGED
        _add(case, "error", f"{run['kind']}: {why}", run["problem"], run["kind"])


def _add(case: ET.Element, name: str, message: str, details: str, kind: str = "") -> None:
    outcome = ET.SubElement(case, name, {"message": _text(message)})
    if kind:
        outcome.set("type", _text(kind))
    if details:
        outcome.text = _text(details)


def _text(value: object) -> str:
    """Return a redacted text of a bounded length with only characters that XML allows."""
    text = clean_text(private_names.get_redactor().redact_text(str(value)))
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."
