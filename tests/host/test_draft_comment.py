"""The comment on an issue says what was seen, and does not blame PyTorch for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.reported import answers
from reprokit.core.reported.answers import CapturedRun
from reprokit.core.reported.issue_programs import FoundProgram
from reprokit.core.reported.reported_failure import ReportedCommand, ReportedFailure
from reprokit.host.pack.reader import PackFiles
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.scrub import draft_comment
from reprokit.host.scrub.run_issue import IssueProgram, IssueRun, JailedCapture, ScrubResult

ISSUE = IssueProgram(
    "it fails", FoundProgram("import torch\n", (1,)), ReportedCommand({}), ReportedFailure()
)


def comment(answer: str, why: str, verdict: Verdict | None = None) -> str:
    failure = None
    if verdict is not None:
        signature = Signature("0" * 12, "exception: codegen | E", ALGORITHM)
        pack = PackFiles(Path("p.tar.gz"), {}, {}, {})
        opened = OpenedPack(pack, verdict, signature, Observation())
        run = CapturedRun(verdict.kind, "E: x", signature.title, verdict.responsible, False)
        failure = JailedCapture(run, opened)
    result = ScrubResult((IssueRun("2.13.0", answer, why),), failure)
    return draft_comment.draft_comment(ISSUE, result, (), Path("/nowhere")).text


@pytest.mark.parametrize(
    ("answer", "why", "headline"),
    [
        (answers.FAILS, "E: x", "**Still fails** with torch 2.13.0: `E: x`."),
        (
            answers.FAILS,
            f"compiled: KeyError{answers.IS_PRINTED}",
            "**Still fails** with torch 2.13.0: `compiled: KeyError`, which the program prints, and"
            " does not print in eager.",
        ),
        (
            answers.DIFFERENT,
            "a *new* one",
            "**Fails in a different way** with torch 2.13.0: a `*new*` one.",
        ),
        (answers.CANNOT_TELL, "it hangs", "**Cannot tell** with torch 2.13.0: it hangs."),
        (answers.PASSES, "no error", "**Passes** with torch 2.13.0 (1 of 1 runs): no error."),
    ],
)
def test_the_first_line_has_the_answer(answer: str, why: str, headline: str) -> None:
    """The comment begins with the answer of the first torch, and text of the program is escaped."""
    assert comment(answer, why).splitlines()[0] == headline


@pytest.mark.parametrize(
    ("kind", "responsible", "facts"),
    [
        (
            "error-in-eager",
            "user",
            (
                "Responsible: user, in codegen.",
                "Not a bug of PyTorch: nothing shows that the compiler is at fault.",
            ),
        ),
        (
            "exception",
            "driver",
            (
                "Responsible: driver, in codegen.",
                "Not a bug of PyTorch: the GPU driver is responsible, not the compiler.",
            ),
        ),
        (
            "exception",
            "",
            ("Responsible: unknown, in codegen.", "Nothing shows who is responsible."),
        ),
        ("exception", "torch", ("Responsible: torch, in codegen.",)),
    ],
)
def test_a_failure_of_others_is_no_bug_of_pytorch(
    kind: str, responsible: str, facts: tuple[str, ...]
) -> None:
    """The comment says that a failure is not a bug of PyTorch only if it is known whose it is."""
    verdict = Verdict(kind, "codegen", None, "it was raised", responsible=responsible)
    text = comment(answers.FAILS, "E: x", verdict)
    assert all(fact in text for fact in facts), text
    assert ("Not a bug of PyTorch" in text) == (responsible in ("user", "driver"))
    assert ("Nothing shows" in text) == (not responsible)
