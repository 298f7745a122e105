"""Draft the comment that a maintainer would write: does it fail, with which program, since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit import __version__
from reprokit.core.records.claims import (
    Check,
    Claim,
    How,
    KnownIssue,
    PackedProgram,
    Subject,
    UsersRun,
    claim,
)
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.reported import answers
from reprokit.core.shared.contract import run_names
from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownMatch
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.pack import issue_claims
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.report import markdown
from reprokit.host.report.template_files import public_templates
from reprokit.host.scrub.run_issue import IssueProgram, IssueRun, JailedCapture, ScrubResult
from reprokit.host.system import private_names

MAX_LOG_CHARS = 8_000
RESULT_FILE = "scrub.json"
"""The file in the folder of the results that has all answers, and the claims of the comment."""


@dataclass(frozen=True)
class IssueComment:
    """The draft of a comment."""

    text: str
    """Markdown."""
    claims: tuple[Claim[Any], ...]
    """Its statements."""


def draft_comment(
    issue: IssueProgram, result: ScrubResult, known: Sequence[KnownMatch], folder: Path
) -> IssueComment:
    """Return the comment, without private names; ``folder`` is that of the results.

    All of the pack is text of a stranger, so it is code or escaped.
    """
    failure = result.failure
    opened = failure.opened if failure is not None else None
    repro = opened.repro if opened is not None else ""
    versions = result.dated(issue.reported.kind).versions if len(result.runs) > 1 else ""
    redactor = private_names.get_redactor()
    first = headline(result)
    about = _about_program(result)
    rows = [_Row(run.torch, _answer(run)) for run in result.runs]
    dated = claim(f"It {versions}.", _Runs()) if versions else None
    facts = _facts(issue, opened, known)
    text = markdown.render_template(
        public_templates(),
        "issue/scrub.md.j2",
        headline=first,
        about=about,
        repro=redactor.redact_python(repro) if repro else "",
        runs=rows,
        versions=dated,
        facts=facts,
        logs="" if repro else _text(opened, "issue/error_logs.md"),
        collected=_text(opened, "collect_env.txt"),
    )
    printed = [row.answer for row in rows] if len(rows) > 1 else []
    claims = filter(None, (first, about, *printed, dated, *facts))
    return IssueComment(text.replace(str(folder), "<folder>").strip() + "\n", tuple(claims))


@dataclass(frozen=True)
class _Runs:
    """The evidence of a claim about the program of an issue: its runs with each torch."""

    about = UsersRun
    packed_as = RESULT_FILE


@dataclass(frozen=True)
class _Failure:
    """The evidence of a claim about the smallest program of an issue."""

    about = PackedProgram
    packed_as = run_names.MINIMIZE_FILE
    capture: JailedCapture


@dataclass(frozen=True)
class _Entry:
    """The evidence of a claim about a known failure: its entry in the catalogue."""

    about = KnownIssue
    packed_as = "catalogue"
    match: KnownMatch


@dataclass(frozen=True)
class _Row:
    """One line of the table of versions."""

    torch: str
    answer: Claim[UsersRun]


def _answer(run: IssueRun) -> Claim[UsersRun]:
    return claim(f"{run.answer} {run.why}", _Runs(), *_run_again(run))


def _run_again(run: IssueRun) -> list[Check]:
    if run.why.endswith(answers.IS_PRINTED):
        return [Check("output", {"words": run.why.removesuffix(answers.IS_PRINTED)})]
    how: How = "passes" if run.answer == answers.PASSES else "fails"
    is_known = run.answer in (answers.PASSES, answers.FAILS)
    return [Check(how, {"of": "issue", "torch": run.torch})] * is_known


def headline(result: ScrubResult) -> Claim[UsersRun]:
    """Return the answer of the first torch in one sentence."""
    first = result.runs[0]
    torch, why = f"torch {first.torch}", first.why
    row = why.removesuffix(answers.IS_PRINTED)
    how = why.removeprefix(row)
    text = {
        answers.FAILS: f"Still fails with {torch}: `{row.replace('`', chr(39))}`{how}.",
        answers.DIFFERENT: f"Fails in a different way with {torch}: {why}.",
        answers.CANNOT_TELL: f"Cannot tell with {torch}: {why}.",
    }.get(first.answer)
    if text is None:
        failing = [run for run in result.runs[1:] if run.answer == answers.FAILS]
        older = f" It fails with torch {failing[0].torch}." if failing else ""
        text = f"Passes with {torch} ({first.runs} of {first.runs} runs): {why}.{older}"
    return claim(text, _Runs(), *_run_again(first))


def _about_program(result: ScrubResult) -> Claim[PackedProgram] | None:
    """Return what the smallest program is, or why there is none."""
    failure = result.failure
    if failure is None:
        return None
    repro = failure.opened.repro if failure.opened is not None else ""
    if repro:
        what = (
            "The smallest program with the same failure"
            if failure.is_reduced
            else "The program of the issue has this failure"
        )
        lines = count_code_lines(repro)
        text = f"{what} ({lines} lines, it fails in {failure.proof} fresh processes):"
        return claim(text, _Failure(failure), Check("lines", {"lines": lines}), Check("fails"))
    if failure.unproven:
        text = f"There is no smaller program: {failure.unproven}."
        return claim(text, _Failure(failure), Check("lines", {"lines": 0}))
    return None


def _facts(
    issue: IssueProgram, opened: OpenedPack | None, known: Sequence[KnownMatch]
) -> list[Claim[Subject]]:
    """Return what else a maintainer asks for, one sentence each."""
    rows: list[Claim[Subject]] = []
    if opened is not None and kind_named(opened.verdict.kind).is_failure:
        rows += issue_claims.who_is_responsible(opened.verdict)
    rows += [
        claim(match.sentence, _Entry(match), Check("issue", {"issue": match.entry.issue}))
        for match in known
        if match.how not in known_failures.MAYBE
    ]
    program, command = issue.program, issue.command
    if command.variables:
        settings = " ".join(f"{name}={value}" for name, value in command.variables.items())
        rows.append(claim(f"Run with `{settings}`, as the issue says.", _Runs()))
    if issue.is_cell:
        text = "Run as a notebook runs a cell: `__main__` has no file."
        rows.append(claim(text, _Runs()))
    if program.added:
        text = f"Added to the program of the issue: `{'; '.join(program.added)}`."
        rows.append(claim(text, _Runs()))
    return [*rows, claim(f"Drafted with reprokit {__version__}.", _Runs())]


def _text(opened: OpenedPack | None, name: str) -> str:
    """Return the start of a text of a pack, redacted with the names of this machine."""
    if opened is None:
        return ""
    text = opened.pack.files.get(name, b"").decode("utf-8", "replace").strip()
    return private_names.get_redactor().redact_text(text)[:MAX_LOG_CHARS]
