"""Draft the comment that a maintainer would write: does it fail, with which program, since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reprokit import __version__
from reprokit.core.judge.responsible import responsibility
from reprokit.core.reported import answers
from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownMatch
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.report import markdown
from reprokit.host.report.markdown import Markdown
from reprokit.host.report.template_files import markdown_templates
from reprokit.host.scrub.run_issue import IssueProgram, ScrubResult


def draft_comment(
    issue: IssueProgram,
    result: ScrubResult,
    opened: OpenedPack | None,
    known: Sequence[KnownMatch],
) -> str:
    """Return the comment as Markdown; ``opened`` is the pack of the failure, where there is one."""
    repro = opened.repro if opened is not None else ""
    kind = opened.verdict.kind if opened is not None else issue.reported.kind
    versions = result.dated(kind).versions if len(result.runs) > 1 else ""
    minimized = result.capture.get("minimized") or {}
    text = markdown.render_template(
        markdown_templates(),
        "issue/scrub.md.j2",
        headline=headline(result),
        repro=repro,
        repro_lines=len(repro.splitlines()),
        proof=_proof(minimized),
        program_note=_note(result),
        runs=[
            {"torch": run.torch, "words": f"{run.answer} {run.why}".strip()} for run in result.runs
        ],
        versions=f"It {versions}." if versions else "",
        facts=_facts(issue, opened, known),
        error_logs=_text(opened, "issue/error_logs.md") if not repro else "",
        collected=_text(opened, "issue/versions.md"),
    )
    return text.strip() + "\n"


def headline(result: ScrubResult) -> Markdown:
    """Return the answer of the first torch in one sentence."""
    first = result.runs[0]
    torch = f"torch {first.torch}"
    why = markdown.escape_line(first.why)
    if first.answer == answers.FAILS:
        return Markdown(f"**Still fails** with {torch}: {markdown.code_span(first.why)}.")
    if first.answer == answers.DIFFERENT:
        return Markdown(f"**Fails in a different way** with {torch}: {why}.")
    if first.answer == answers.CANNOT_TELL:
        return Markdown(f"**Cannot tell** with {torch}: {why}.")
    failing = [run for run in result.runs[1:] if run.answer == answers.FAILS]
    older = f" It fails with torch {failing[0].torch}, with the program below." if failing else ""
    return Markdown(f"**Passes** with {torch} ({first.runs} of {first.runs} runs): {why}.{older}")


def _proof(minimized: Mapping[str, Any]) -> str:
    proof = minimized.get("proof") or {}
    return f"{proof.get('hits', 0)} of {proof.get('runs', 0)} runs in fresh processes"


def _note(result: ScrubResult) -> str:
    unproven = result.capture.get("unproven")
    return f"There is no smaller program: {unproven}." if unproven else ""


def _facts(
    issue: IssueProgram, opened: OpenedPack | None, known: Sequence[KnownMatch]
) -> list[str]:
    """Return what else a maintainer asks for, one sentence each."""
    rows = []
    if opened is not None:
        part = opened.verdict.phase or "no phase of the compiler"
        who = opened.verdict.responsible
        rows.append(f"Responsible: {who or 'unknown'}, in {part}.")
        if why := responsibility.why_not_filed(opened.verdict):
            rows.append(f"Not a bug of PyTorch: {why}.")
    rows += [match.sentence for match in known if match.how != known_failures.SIMILAR]
    program, command = issue.program, issue.command
    if command.variables:
        settings = " ".join(f"{name}={value}" for name, value in command.variables.items())
        rows.append(f"Run with `{settings}`, as the issue says.")
    if program.added:
        rows.append(f"Added to the program of the issue: `{'; '.join(program.added)}`.")
    rows.append(f"Drafted with reprokit {__version__}.")
    return rows


def _text(opened: OpenedPack | None, name: str) -> Markdown:
    if opened is None:
        return Markdown("")
    return Markdown(opened.pack.files.get(name, b"").decode("utf-8", "replace").strip())
