"""Write the bugs of a ledger as a catalogue of known failures, for the captures of a team."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from typing import Any

from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.host.nightly.ledger import bugs
from reprokit.host.nightly.ledger.database import Ledger
from reprokit.host.system import private_names

PREFIX = "ledger"
"""The name of a bug that no decision of a user connects to an issue is ``ledger#NUMBER``."""
_ISSUE = re.compile(r"[\w.-]+/[\w.-]+#\d{1,7}|https://github\.com/[\w.-]+/[\w.-]+/issues/\d{1,7}")


def known_bugs(ledger: Ledger) -> Iterator[KnownFailure]:
    """Yield an entry for each bug that has a signature and is merged into no other.

    The issue is the one that the reason of a decision names, such as that of ``nightly mute``.
    """
    redactor = private_names.get_redactor()
    for bug in ledger.fetch_all("SELECT * FROM bug WHERE merged IS NULL ORDER BY id"):
        runs = tuple(_runs(ledger, bug["id"]))
        if not runs:
            continue
        yield KnownFailure(
            issue=_issue_of(ledger, bug),
            title=redactor.redact_text(bug["title"]),
            kind=bug["kind"],
            component=bug["phase"],
            program=redactor.redact_python(bug["repro"]),
            state="closed" if bug["status"] == "fixed" else "open",
            runs=runs,
        )


def _issue_of(ledger: Ledger, bug: Any) -> str:
    """Return the issue that a reason names last, or the number of the bug."""
    rows = ledger.fetch_all("SELECT why FROM event WHERE bug = ? ORDER BY id DESC", bug["id"])
    for text in (bug["muted"] or "", *(row["why"] for row in rows)):
        if found := _ISSUE.search(text):
            address = found[0].removeprefix("https://github.com/")
            return address.replace("/issues/", "#")
    return f"{PREFIX}#{bug['id']}"


def _runs(ledger: Ledger, bug: int) -> Iterator[ProvedRun]:
    """Yield one run for each signature and version of torch in which the bug was seen."""
    redact = private_names.get_redactor().redact_text
    for row in ledger.fetch_all(
        "SELECT s.id, s.algorithm, s.title, s.traits, v.torch, n.started FROM signature s"
        " JOIN version v ON v.signature = s.id JOIN night n ON n.id = v.last"
        " WHERE s.bug = ? ORDER BY v.torch, s.id",
        bug,
    ):
        traits = bugs.traits_from_json(json.loads(row["traits"]))
        yield ProvedRun(
            torch=row["torch"].partition("+")[0],
            answer=known_failures.FAILS,
            date=datetime.date.fromtimestamp(row["started"]).isoformat(),
            algorithm=row["algorithm"],
            signature=row["id"],
            title=redact(row["title"]),
            frames=tuple(map(redact, traits.frames)),
            kernel=redact(traits.kernel),
        )
