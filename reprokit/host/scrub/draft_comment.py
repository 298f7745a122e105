"""Draft the comment that a maintainer would write: does it fail, with which program, since when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reprokit import __version__
from reprokit.core.judge.responsible import responsibility
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.reported import answers
from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownMatch
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.report import markdown
from reprokit.host.report.markdown import Markdown
from reprokit.host.report.template_files import markdown_templates
from reprokit.host.scrub.run_issue import IssueProgram, ScrubResult
from reprokit.host.system import private_names

MAX_LOG_CHARS = 8_000


def draft_comment(
    issue: IssueProgram, result: ScrubResult, known: Sequence[KnownMatch], folder: Path
) -> str:
    """Return the comment as Markdown, without private names; ``folder`` is that of the results.

    All of the pack is text of a stranger, so it is code or escaped.
    """
    failure = result.failure
    opened = failure.opened if failure is not None else None
    repro = opened.repro if opened is not None else ""
    versions = result.dated(issue.reported.kind).versions if len(result.runs) > 1 else ""
    redactor = private_names.get_redactor()
    text = markdown.render_template(
        markdown_templates(),
        "issue/scrub.md.j2",
        headline=headline(result),
        repro=redactor.redact_python(repro) if repro else "",
        repro_lines=len(repro.splitlines()),
        is_reduced=failure is not None and failure.is_reduced,
        proof=failure.proof if failure is not None else "",
        unproven=failure.unproven if failure is not None else "",
        runs=result.runs,
        versions=f"It {versions}." if versions else "",
        facts=_facts(issue, opened, known),
        logs="" if repro else _text(opened, "issue/error_logs.md"),
        collected=_text(opened, "collect_env.txt"),
    )
    return text.replace(str(folder), "<folder>").strip() + "\n"


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
    older = f" It fails with torch {failing[0].torch}." if failing else ""
    return Markdown(f"**Passes** with {torch} ({first.runs} of {first.runs} runs): {why}.{older}")


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
            is_known = who not in ("", "unknown")
            rows.append(f"Not a bug of PyTorch: {why}." if is_known else as_sentence(why))
    rows += [match.sentence for match in known if match.how not in known_failures.MAYBE]
    program, command = issue.program, issue.command
    if command.variables:
        settings = " ".join(f"{name}={value}" for name, value in command.variables.items())
        rows.append(f"Run with `{settings}`, as the issue says.")
    if issue.is_cell:
        rows.append("Run as a notebook runs a cell: `__main__` has no file.")
    if program.added:
        rows.append(f"Added to the program of the issue: `{'; '.join(program.added)}`.")
    rows.append(f"Drafted with reprokit {__version__}.")
    return rows


def _text(opened: OpenedPack | None, name: str) -> str:
    """Return the start of a text of a pack, redacted with the names of this machine."""
    if opened is None:
        return ""
    text = opened.pack.files.get(name, b"").decode("utf-8", "replace").strip()
    return private_names.get_redactor().redact_text(text)[:MAX_LOG_CHARS]
