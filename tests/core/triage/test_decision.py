"""One decision on a failure: a new issue, a comment, or nothing."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.records.finding import Verdict
from reprokit.core.triage.decision import COMMENT, NEW_ISSUE, NOTHING, decide
from reprokit.core.triage.known_failures import KnownFailure, KnownMatch

TORCH = Verdict("exception", "codegen", "KeyError", "It fails.", (), responsible="torch")
ENTRY = KnownFailure(
    "pytorch/pytorch#7", "a buffer is lost", "exception", "inductor", workaround="import x\nx.y = 1"
)
SAME = KnownMatch(ENTRY, "same", 1.0)
LIKELY = KnownMatch(ENTRY, "likely", 0.93)
SIMILAR = KnownMatch(ENTRY, "similar", 0.8)
OTHER = KnownMatch(dataclasses.replace(ENTRY, issue="pytorch/pytorch#8"), "similar", 0.8)
LIKELY_TOO = KnownMatch(OTHER.entry, "likely", 0.93)
LESS = KnownMatch(ENTRY, "similar", 0.7)


def test_a_known_failure_gets_a_comment() -> None:
    """With the page of its comments, and what avoids it."""
    made = decide(TORCH, [SAME])
    assert (made.action, made.issue, made.why) == (COMMENT, ENTRY.issue, ENTRY.title)
    assert made.url == "https://github.com/pytorch/pytorch/issues/7#issue-comment-box"
    assert made.avoids == "import x; x.y = 1"


@pytest.mark.parametrize(
    ("known", "issue", "similar"),
    [
        ([], "", ()),
        ([SIMILAR], "", (ENTRY.issue,)),
        ([SIMILAR, LESS], "", (ENTRY.issue,)),
        ([SIMILAR, OTHER, LESS], "", (ENTRY.issue, "pytorch/pytorch#8")),
        ([LIKELY], ENTRY.issue, ()),
        ([LIKELY, LIKELY_TOO], "", (ENTRY.issue, "pytorch/pytorch#8")),
    ],
)
def test_other_failures_of_torch_get_a_new_issue(
    known: list[KnownMatch], issue: str, similar: tuple[str, ...]
) -> None:
    """A failure that is probably known, or similar, is named, to be compared first."""
    made = decide(TORCH, known)
    assert (made.action, made.issue, made.url) == (NEW_ISSUE, issue, "")
    assert made.similar == similar


def test_a_bug_of_a_ledger_has_no_page() -> None:
    """Its failure is not known upstream, so it gets a new issue."""
    own = dataclasses.replace(SAME, entry=dataclasses.replace(ENTRY, issue="ledger#12"))
    assert decide(TORCH, [own]).action == NEW_ISSUE


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (dataclasses.replace(TORCH, responsible="user", responsible_place="a.py:3"), "a.py:3"),
        (dataclasses.replace(TORCH, responsible="machine"), "machine"),
        (dataclasses.replace(TORCH, responsible="unknown"), "nothing shows"),
        (dataclasses.replace(TORCH, kind="error-in-eager"), "compiler is at fault"),
        (Verdict("ok", None, None, "fine", ()), "nothing failed"),
    ],
)
def test_there_is_nothing_to_file(verdict: Verdict, words: str) -> None:
    """Also if an entry of the catalogue has the same signature."""
    made = decide(verdict, [SAME])
    assert (made.action, made.issue, made.url) == (NOTHING, "", "") and words in made.why
