"""Render the templates: the fields of an issue form, the whole issue, and the README of the pack.

The texts of an issue are in ``templates/``; an unknown name in a template is an error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit import __version__
from reprokit.core.experiments.ablation import AnyAblation
from reprokit.core.experiments.failure_conditions import Conditions
from reprokit.core.judge.responsible import responsibility
from reprokit.core.judge.responsible.parties import UPSTREAM
from reprokit.core.judge.stacks import python_traceback
from reprokit.core.judge.stacks.evidence import blamed_exception, main_stacks
from reprokit.core.judge.stacks.frames import root_cause
from reprokit.core.records.claims import Claim, Subject, claim
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.triage.decision import NEW_ISSUE, Decision, decide
from reprokit.core.triage.known_failures import KnownMatch
from reprokit.host.minimize.proofs.proven import Candidate, Repro
from reprokit.host.pack import issue_claims
from reprokit.host.pack.issue_forms import FORMS, issue_form_url
from reprokit.host.report import markdown, report_head
from reprokit.host.report.markdown import Markdown
from reprokit.host.report.template_files import markdown_templates, public_templates

MAX_ISSUE_CHARS = 60_000
"""GitHub refuses bodies over 65,536 characters; the rest is for the text of the user."""
MAX_REPRO_CHARS = 24_000
"""A longer repro is only in the pack."""
MAX_LINES = 45
"""Lines before the versions. A maintainer reads the whole text only if it is short."""
MAX_DETAILS = 16
"""Lines of the collapsed part about how the failure was found."""
HEADING_LINES = 6
"""The lines of the two headings before these parts, and the empty lines around them."""


@dataclass(frozen=True)
class IssueFacts:
    """The redacted data of an issue."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    command: str
    program: Repro | Candidate
    is_simulated: bool
    collect_env: str
    environment: dict[str, Any]
    variables: dict[str, str]
    configs: dict[str, dict[str, str]]
    missing: tuple[Missing, ...]
    known: tuple[KnownMatch, ...] = ()
    """The known failures that the failure matches, the best first."""
    ablation: AnyAblation | None = None
    """None if no ablation step ran."""
    depends_on: tuple[str, ...] = ()
    """Sentences on the values that the failure of the repro depends on."""
    conditions: Conditions | None = None
    """What the failure of the repro needs, and what it does not depend on."""
    traceback: str = ""
    """The traceback of the repro, as :mod:`python_traceback` shortens it; empty without one."""
    traces: tuple[str, ...] = ()
    """The files of the tarball with the TORCH_TRACE, the largest first."""
    folders: tuple[str, ...] = ()
    """The working directory of the program, and the folder of its file. The issue names files below
    them without them.
    """


@dataclass(frozen=True)
class IssueText:
    """The texts of an issue, ready to paste."""

    title: str
    describe: str
    error_logs: str
    versions: str
    joined: str
    decision: Decision
    claims: tuple[Claim[Subject], ...] = ()
    """What the text states, in its order."""


@dataclass(frozen=True)
class _Limits:
    """How long the parts of an issue may be."""

    repro_chars: int = MAX_REPRO_CHARS
    log_chars: int = 16_000
    environment_chars: int = 12_000
    frames: int = python_traceback.MAX_FRAMES
    log_lines: int = 12

    def with_fewer_characters(self) -> _Limits:
        return dataclasses.replace(
            self,
            repro_chars=self.repro_chars * 3 // 4,
            log_chars=self.log_chars * 3 // 4,
            environment_chars=self.environment_chars * 3 // 4,
        )

    def with_fewer_lines(self) -> _Limits:
        if self.log_lines:
            return dataclasses.replace(self, log_lines=self.log_lines - 4)
        return dataclasses.replace(self, frames=max(3, self.frames - 1))


def make_issue(facts: IssueFacts) -> IssueText:
    """Render the issue. Cut its longest parts until it fits into the limits of GitHub and, as far
    as the repro allows it, into ``MAX_LINES``.
    """
    limits = _Limits()
    while True:
        rendered = _render(facts, limits)
        if len(rendered.joined) > MAX_ISSUE_CHARS and limits.repro_chars >= 500:
            limits = limits.with_fewer_characters()
            continue
        parts = rendered.describe.strip(), rendered.error_logs.strip()
        lines = sum(len(part.splitlines()) for part in parts) + HEADING_LINES
        shorter = limits.with_fewer_lines()
        if lines <= MAX_LINES or shorter == limits:
            return rendered
        limits = shorter


def _render(facts: IssueFacts, limits: _Limits) -> IssueText:
    seen, verdict = facts.seen, facts.verdict
    decision = decide(verdict, facts.known)
    has_repro = isinstance(facts.program, Repro)
    is_simulated = facts.is_simulated and not seen.kernel
    title = issue_claims.title(verdict, facts.signature.parts, seen, facts.program.text)
    banner = _with_short_paths(issue_claims.banner(decision, verdict), facts.folders)
    summary = _with_short_paths(_summary(facts), facts.folders)
    ablation = issue_claims.ablation_of(facts.ablation)
    details: list[Claim[Any]] = [*issue_claims.details(verdict, facts.signature, seen)]
    details[1:1] = facts.conditions.does_not_need if facts.conditions else []
    details = _with_short_paths(details[:MAX_DETAILS], facts.folders)
    settings = issue_claims.settings(facts.configs)
    describe = _fill(
        "issue/describe.md.j2",
        banner=banner,
        summary=summary,
        program=Markdown(program_section(facts.program, limits.repro_chars, is_simulated).strip()),
        is_kernel=bool(seen.kernel),
        has_repro=has_repro,
        ablation=ablation,
        growth="\n".join(seen.growth.get("table", ())),
    )
    stack, stack_about = _stack(seen, verdict, 2 * limits.frames)
    traceback = _traceback(facts, limits.frames)
    log = [] if traceback else seen.stderr_tail.strip().splitlines()[-limits.log_lines :]
    log = log if limits.log_lines else []
    answers = issue_claims.long_answers(seen) if limits.log_lines else []
    no_error = issue_claims.no_error(seen)
    error_logs = _fill(
        "issue/error_logs.md.j2",
        traceback=cut_text(traceback, limits.log_chars // 2),
        stack=cut_text(stack, limits.log_chars // 2),
        stack_about=claim(stack_about, seen),
        answers=answers,
        no_error=no_error,
        stderr=cut_text("\n".join(log), limits.log_chars // 2),
        log_lines=limits.log_lines,
        traces=facts.traces,
    )
    versions = _fill(
        "issue/versions.md.j2",
        collect_env=cut_text(facts.collect_env.strip(), limits.environment_chars),
        no_collect_env=issue_claims.no_collect_env(facts.missing),
        facts=cut_text(
            json.dumps(facts.environment, indent=1, default=repr), limits.environment_chars // 2
        ),
        variables=cut_text("\n".join(f"{k}={v}" for k, v in facts.variables.items()), 3_000),
        details=details,
        command=cut_text(facts.command, 2_000),
        configs=cut_text("\n".join(row.text for row in settings), 3_000),
    )
    repository = responsibility.repository_for(verdict)
    default = FORMS[UPSTREAM["torch"]]
    form = FORMS[UPSTREAM["triton"]] if seen.kernel else FORMS.get(repository, default)
    joined = _fill(
        f"issue/{form.layout}",
        describe=Markdown(describe.strip()),
        error_logs=Markdown(error_logs.strip()),
        versions=Markdown(versions.strip()),
    )
    written = markdown.issue_title(title.text)
    if decision.action == NEW_ISSUE:
        decision = dataclasses.replace(decision, url=issue_form_url(written, repository))
    about = issue_claims.about_program(facts.program, is_simulated)
    unproved = facts.program if isinstance(facts.program, Candidate) else None
    candidate = issue_claims.about_candidate(unproved) if unproved else []
    logs = [row.question for row in answers]
    logs += [no_error] * (not traceback and not stack and not log and not answers)
    claims = (title, *banner, *summary, about, *candidate, *ablation, *logs, *details, *settings)
    return IssueText(written, describe, error_logs, versions, joined, decision, claims)


def _with_short_paths(rows: Iterable[Claim[Any]], folders: Sequence[str]) -> list[Claim[Any]]:
    """Return claims that name files below the folders without them."""
    return [
        dataclasses.replace(row, text=report_head.short_paths(row.text, folders)) for row in rows
    ]


def _summary(facts: IssueFacts) -> list[Claim[Any]]:
    """Return the first paragraph: what fails, without the compiler too or not, where and when."""
    proof = facts.program.proof if isinstance(facts.program, Repro) else None
    rows: list[Claim[Any]] = [issue_claims.what_fails(facts.verdict, facts.seen)]
    rows += issue_claims.without_compile(proof, facts.seen)
    rows += issue_claims.depends_on(facts.depends_on, proof)
    rows += facts.conditions.needs if facts.conditions else []
    return rows + issue_claims.version(facts.collect_env)


def program_section(shown: Repro | Candidate, max_chars: int, is_simulated: bool = False) -> str:
    """Return the part of an issue with the program; only a proved program is called a repro."""
    repro = shown if isinstance(shown, Repro) else None
    return _fill(
        "issue/program.md.j2",
        repro=repro.text if repro else "",
        about=issue_claims.about_program(shown, is_simulated),
        candidate=[] if isinstance(shown, Repro) else issue_claims.about_candidate(shown),
        is_long=len(shown.text) > max_chars,
    )


def render_pack_readme(
    facts: IssueFacts, contents: list[tuple[str, str]], trimmed: list[str], hidden: str
) -> str:
    """Return the README of the pack."""
    return markdown.render_template(
        markdown_templates(),
        "pack_readme.md.j2",
        verdict=facts.verdict,
        signature=facts.signature,
        version=__version__,
        command=facts.command,
        contents=contents,
        missing=facts.missing,
        trimmed=trimmed,
        hidden=hidden,
        why_not_filed=responsibility.why_not_filed(facts.verdict),
        unproven=(
            ""
            if isinstance(facts.program, Repro) or facts.verdict.kind == "ok"
            else facts.program.why
        ),
    )


def add_version_range(describe: str, sentence: str) -> str:
    """Return the description of an issue with a sentence about the versions that fail, at the end
    of its first paragraph.
    """
    rows = describe.splitlines()
    is_text = [bool(row) and not row.startswith(("<!--", ">")) for row in rows]
    place = is_text.index(True) if True in is_text else len(rows)
    rows[place : place + 1] = [" ".join([*rows[place : place + 1], markdown.escape_line(sentence)])]
    return "\n".join(rows) + "\n"


def cut_text(text: str, max_chars: int) -> str:
    """Keep the start and the end of a long text, with the number of bytes that were cut."""
    if len(text) <= max_chars:
        return text
    head = max(max_chars * 2 // 3, 0)
    tail = max(max_chars - head - 40, 0)
    gone = len(text[head : len(text) - tail].encode("utf-8", "replace"))
    return f"{text[:head]}\n<<cut {gone} bytes>>\n{text[len(text) - tail :]}"


def _traceback(facts: IssueFacts, max_frames: int) -> str:
    """Return the traceback of the repro, or else of the run."""
    seen = facts.seen
    if facts.verdict.kind in ("hang", "slow-compile", "crash") and not facts.traceback:
        return ""
    if facts.traceback:
        return (
            python_traceback.shorten_traceback(facts.traceback, run_names.REPRO_FILE, max_frames)
            or facts.traceback
        )
    raised = blamed_exception(seen)
    return python_traceback.render_exception(root_cause(raised), max_frames) if raised else ""


def _stack(seen: Observation, verdict: Verdict, max_frames: int) -> tuple[str, str]:
    """Return the stack of the thread with the fatal signal, or of the main thread, and its
    origin.
    """
    for fault in seen.faults:
        if fault.frames:
            stack = python_traceback.render_stack(fault.frames, max_frames)
            return f"{fault.headline}\n{stack}", "at the fatal signal"
    stacks = main_stacks(seen) if verdict.kind in ("hang", "slow-compile", "unknown") else []
    if stacks:
        stack = python_traceback.render_stack(stack_above_compiler(stacks[-1]), max_frames)
        return stack, f"the last of {len(stacks)} dumps"
    return "", ""


def stack_above_compiler(stack: tuple[Frame, ...], max_frames: int = 60) -> list[Frame]:
    """Return the frames from the innermost to the entry of the compiler, without the code of the
    user that called it.
    """
    entry = next((i for i, f in enumerate(stack) if f.file.endswith("_dynamo/eval_frame.py")), None)
    return list(stack[: min(max_frames, len(stack) if entry is None else entry + 1)])


def _fill(name: str, **values: Any) -> Markdown:
    return markdown.render_template(public_templates(), name, **values)
