"""Render the templates: the fields of an issue form, the whole issue, and the README of the pack.

The texts of an issue are in ``templates/``; an unknown name in a template is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from reprokit import __version__
from reprokit.core.judge.hangs import hang_causes
from reprokit.core.judge.responsible import responsibility
from reprokit.core.judge.responsible.responsibility import UPSTREAM
from reprokit.core.judge.stacks.evidence import main_stacks
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.host.minimize.proven import Candidate, Repro
from reprokit.host.pack.issue_forms import FORMS, issue_form_url
from reprokit.host.report import markdown
from reprokit.host.report.markdown import Markdown
from reprokit.host.report.template_files import markdown_templates

MAX_ISSUE_CHARS = 60_000
"""GitHub refuses bodies over 65,536 characters; the rest is for the text of the user."""
MAX_REPRO_CHARS = 24_000
"""A longer repro is only in the pack."""
MAX_REMARKS = 4
"""Remarks of the compiler in an issue; the report has all of them."""


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
    ablation: dict[str, Any] = field(default_factory=dict)
    """``ablation.json``; empty if no ablation step ran."""


@dataclass(frozen=True)
class IssueText:
    """The texts of an issue, ready to paste."""

    describe: str
    error_logs: str
    versions: str
    joined: str
    url: str


def make_issue(facts: IssueFacts) -> IssueText:
    """Render the issue, and cut its longest parts in the middle until it fits."""
    repro_chars, log_chars, env_chars = MAX_REPRO_CHARS, 16_000, 12_000
    while True:
        rendered = _render(facts, repro_chars, log_chars, env_chars)
        over = len(rendered.joined) - MAX_ISSUE_CHARS
        if over <= 0 or repro_chars < 500:
            return rendered
        repro_chars, log_chars, env_chars = (
            repro_chars * 3 // 4,
            log_chars * 3 // 4,
            env_chars * 3 // 4,
        )


def _render(facts: IssueFacts, repro_chars: int, log_chars: int, env_chars: int) -> IssueText:
    seen = facts.seen
    describe = _fill(
        "issue/describe.md.j2",
        verdict=facts.verdict,
        signature=facts.signature,
        version=__version__,
        eager=_eager(seen),
        answers=seen.answers,
        explain=hang_causes.explain_cause(facts.verdict),
        also=hang_causes.explain_also(facts.verdict),
        graphs=_graphs(seen),
        seconds=seen.seconds,
        cpu_s=seen.cpu_s,
        peak_rss_bytes=seen.peak_rss_bytes,
        evidence=[*facts.verdict.evidence[:8], *map(str, seen.remarks[:MAX_REMARKS])],
        growth="\n".join(seen.growth.get("table", ())),
        command=cut_text(facts.command, 2_000),
        program=Markdown(
            program_section(
                facts.program, repro_chars, facts.is_simulated and not seen.kernel
            ).strip()
        ),
        kernel=seen.kernel,
        device=facts.verdict.simulated,
        configs=cut_text(_configs(facts.configs), 3_000),
        ablation=facts.ablation,
        why_not_filed=responsibility.why_not_filed(facts.verdict),
    )
    stack, stack_about = _stack(seen)
    error_logs = _fill(
        "issue/error_logs.md.j2",
        traceback=cut_text(_traceback(seen), log_chars // 2),
        stack=cut_text(stack, log_chars // 2),
        stack_about=stack_about,
        answers=seen.answers,
        stderr=cut_text(seen.stderr_tail.strip(), log_chars // 2),
    )
    versions = _fill(
        "issue/versions.md.j2",
        collect_env=cut_text(facts.collect_env.strip(), env_chars),
        no_collect_env=next(
            (m.why for m in facts.missing if "collect_env" in m.what), "it did not run"
        ),
        facts=cut_text(json.dumps(facts.environment, indent=1, default=repr), env_chars // 2),
        variables=cut_text("\n".join(f"{k}={v}" for k, v in facts.variables.items()), 3_000),
    )
    repository = responsibility.repository_for(facts.verdict)
    default = FORMS[UPSTREAM["torch"]]
    form = FORMS[UPSTREAM["triton"]] if seen.kernel else FORMS.get(repository, default)
    joined = _fill(
        f"issue/{form.layout}",
        describe=Markdown(describe.strip()),
        error_logs=Markdown(error_logs.strip()),
        versions=Markdown(versions.strip()),
    )
    return IssueText(
        describe, error_logs, versions, joined, issue_form_url(facts.signature.title, repository)
    )


def program_section(shown: Repro | Candidate, max_chars: int, is_simulated: bool = False) -> str:
    """Return the part of an issue with the program; only a proved program is called a repro."""
    repro = shown if isinstance(shown, Repro) else None
    return _fill(
        "issue/program.md.j2",
        repro=repro,
        candidate=None if repro else shown,
        simulated=is_simulated,
        is_long=len(shown.text) > max_chars,
    )


def render_pack_readme(
    facts: IssueFacts, contents: list[tuple[str, str]], trimmed: list[str], hidden: str
) -> str:
    """Return the README of the pack."""
    return _fill(
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


def cut_text(text: str, max_chars: int) -> str:
    """Keep the start and the end of a long text, with the number of bytes that were cut."""
    if len(text) <= max_chars:
        return text
    head = max(max_chars * 2 // 3, 0)
    tail = max(max_chars - head - 40, 0)
    gone = len(text[head : len(text) - tail].encode("utf-8", "replace"))
    return f"{text[:head]}\n<<cut {gone} bytes>>\n{text[len(text) - tail :]}"


def _eager(seen: Observation) -> str:
    if seen.comparison is not None:
        return "it ran; the compiled results are compared with its results"
    if seen.eager == "passes" and seen.eager_detail:
        return seen.eager_detail
    outcome = {
        "passes": "it passes",
        "fails": "it fails as well",
        "hangs": "it does not finish either",
    }.get(seen.eager)
    if outcome:
        return outcome
    return "not tried (a command is run only once)" if seen.is_command else "not tried"


def _graphs(seen: Observation) -> str:
    parts = []
    for level, about in (("dynamo", "Dynamo"), ("aten", "ATen")):
        graphs = [g for g in seen.graphs if g.level == level]
        if graphs:
            nodes = sum(g.nodes for g in graphs)
            parts.append(
                f"{len(graphs)} {about} graph{'s' if len(graphs) > 1 else ''} with {nodes} nodes"
            )
    text = ", ".join(parts) or "no graph was recorded"
    recompiles, breaks = sum(r.count for r in seen.recompiled), sum(b.count for b in seen.breaks)
    text += f", {recompiles} recompiles" if recompiles else ""
    return text + (f", {breaks} graph breaks" if breaks else "")


def _configs(configs: dict[str, dict[str, str]]) -> str:
    return "\n".join(
        f"{module}.{key} = {value}"
        for module, rows in sorted(configs.items())
        for key, value in sorted(rows.items())
    )


def _traceback(seen: Observation) -> str:
    raised = seen.raised or (seen.compile_failures[-1] if seen.compile_failures else None)
    if raised is None:
        return ""
    rows = []
    for link in raised.chain:
        frames = link.frames
        rows.append(f"{link.type}: {cut_text(link.message.strip(), 4_000)}")
        rows += [f"  {f.file}:{f.line} in {f.function}" for f in frames[:30]]
        if len(frames) > 30:
            rows.append(f"  ... {len(frames) - 30} more frames")
    return "\n".join(rows)


def _stack(seen: Observation) -> tuple[str, str]:
    """Return the stack of the thread with the fatal signal, or of the main thread, and its
    origin.
    """
    for fault in seen.faults:
        if fault.frames:
            return (
                "\n".join(
                    [
                        fault.headline,
                        *(f"  {f.file}:{f.line} in {f.function}" for f in fault.frames[:60]),
                    ]
                ),
                "at the fatal signal",
            )
    stacks = main_stacks(seen)
    if stacks:
        rows = [f"  {f.file}:{f.line} in {f.function}" for f in stack_above_compiler(stacks[-1])]
        return "\n".join(rows), f"the last of {len(stacks)} dumps"
    return "", ""


def stack_above_compiler(stack: tuple[Frame, ...], max_frames: int = 60) -> list[Frame]:
    """Return the frames from the innermost to the entry of the compiler, without the code of the
    user that called it.
    """
    entry = next((i for i, f in enumerate(stack) if f.file.endswith("_dynamo/eval_frame.py")), None)
    return list(stack[: min(max_frames, len(stack) if entry is None else entry + 1)])


def _fill(name: str, **values: Any) -> Markdown:
    return markdown.render_template(markdown_templates(), name, **values)
