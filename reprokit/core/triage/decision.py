"""Decide what a user does with a failure: open a new issue, comment on a known one, or nothing.

The decision is made once for a capture. The terminal, the issue, the report, the JSON and the
report of a nightly run show the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from reprokit.core.judge.responsible import responsibility
from reprokit.core.records.finding import Verdict
from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownMatch

Action = Literal["new issue", "comment", "nothing"]
NEW_ISSUE: Final = "new issue"
COMMENT: Final = "comment"
NOTHING: Final = "nothing"


@dataclass(frozen=True)
class Decision:
    """What to do with a failure."""

    action: Action = NOTHING
    why: str = ""
    """Why there is nothing to file, or what is known, as a clause; empty for a new issue."""
    issue: str = ""
    """``OWNER/REPOSITORY#NUMBER`` of the known failure; for a new issue, the one to compare it
    with. Empty if none is known.
    """
    url: str = ""
    """The page to open: the form of a new issue, or the comments of the known one."""
    avoids: str = ""
    """What avoids the known failure, in one line; empty if nothing is known."""
    similar: tuple[str, ...] = ()
    """The issues of the known failures that are most similar, but not shown to be the same."""


UNDECIDED = Decision()


def decide(verdict: Verdict, known: Sequence[KnownMatch]) -> Decision:
    """Return the decision on a failure with the known failures that it matches, the best first.

    The page of a new issue depends on its title, so the caller adds it.
    """
    if why := responsibility.why_not_filed(verdict):
        return Decision(NOTHING, why)
    best = known[0] if known else None
    if best is None or not best.entry.url:
        return Decision(NEW_ISSUE)
    alike = known_failures.issues_of_best(known)
    is_one_of = best.how != known_failures.SAME and len(alike) > 1
    if best.how in known_failures.MAYBE or is_one_of:
        return Decision(NEW_ISSUE, similar=alike)
    avoids = "; ".join(best.entry.workaround.splitlines())
    if best.how == known_failures.SAME:
        url = f"{best.entry.url}#issue-comment-box"
        return Decision(COMMENT, best.entry.title, best.entry.issue, url, avoids)
    return Decision(NEW_ISSUE, issue=best.entry.issue, avoids=avoids)
