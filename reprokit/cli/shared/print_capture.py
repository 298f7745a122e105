"""Print the result of a capture: a summary, or with ``-v`` everything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reprokit.cli.shared import summary
from reprokit.cli.shared.out import RESULTS, SETTINGS, Echo, one_line
from reprokit.core.judge.hangs.hang_causes import EXPLAIN
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.process_state import describe_exit
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.triage.decision import COMMENT
from reprokit.host.pack import placeholder_counts
from reprokit.host.system import host_log

if TYPE_CHECKING:
    from reprokit.host.pipeline.capture_result import CaptureResult

MAX_KNOWN = 3
"""Limit of printed known failures."""
MAX_REPRO_LINES = 100
"""A longer repro is only named, not printed."""
MAX_SHORT_LINES = 15
"""A longer repro is not printed after a summary."""


def print_captured(captured: CaptureResult) -> None:
    """Print the result of a capture in at most ten lines and its repro if it is short, or with
    ``-v`` all of it.
    """
    Echo.end_line(RESULTS)
    if SETTINGS.is_verbose:
        print_everything(captured)
        return
    kind = captured.verdict.kind
    (_, head), *rows = summary.summary_rows(captured)
    RESULTS.print_line((kind, f"bold {kind_named(kind).colour}"), head.removeprefix(kind))
    for name, text in rows:
        RESULTS.print_line(f"{name:<{summary.NAME_COLUMNS}}{one_line(text)}")
    if captured.repro_path is not None:
        print_repro(captured.repro_path, MAX_SHORT_LINES)


def print_everything(captured: CaptureResult) -> None:
    """Print the result of a capture, its measures, and the paths of its files."""
    verdict, seen = captured.verdict, captured.seen
    colour = kind_named(verdict.kind).colour

    def row(name: str, text: str) -> None:
        RESULTS.print_line(f"{name:<10} {text}")

    where = "" if verdict.phase in (None, "eager") else f" in {verdict.phase}"
    RESULTS.print_line((verdict.kind, f"bold {colour}"), f"{where}: {verdict.reason}")
    if verdict.kind == "ok":
        for note in verdict.evidence:
            row("", note)
    if verdict.kind == "hang":
        for name in (verdict.cause or "unknown", *verdict.also):
            row("cause", f"{name}: {EXPLAIN.get(name, '')}")
        for step in verdict.path[:6]:
            row("waits", step)
    for answer in seen.answers:
        row("tested", f"{answer.question}: {answer.answer.splitlines()[-1]}")
    row("signature", f"{captured.signature.id}  {captured.signature.title}")
    for match in captured.known()[:MAX_KNOWN]:
        row("known", one_line(match.sentence))
        if match.entry.url:
            row("", match.entry.url)
    if captured.model:
        row("model", captured.model)
    if captured.weights:
        row("weights", captured.weights)
    for number, difference in enumerate(verdict.simulated):
        row("simulated" if not number else "", difference)
    row(
        "cost",
        f"{seen.seconds:.1f} s, {seen.cpu_s:.1f} CPU-seconds, {seen.peak_rss_bytes / 1e6:.0f} MB at"
        " most",
    )
    if seen.graphs:
        entered = sum(g.nodes for g in seen.graphs if g.is_entered)
        lowered = sum(g.nodes for g in seen.graphs if not g.is_entered)
        tracer = "exported" if any(g.level == "export" for g in seen.graphs) else "Dynamo"
        row(
            "graphs",
            f"{len(seen.graphs)} recorded: {plural(entered, f'{tracer} node')},"
            f" {plural(lowered, 'ATen node')}",
        )
    if captured.ablation and captured.ablation.sentence:
        row("ablation", captured.ablation.sentence)
    if captured.minimized and captured.minimized.text:
        row("minimized", captured.minimized.describe())
        row("", captured.minimized.describe_time())
        for note in (*captured.minimized.depends_on, *captured.minimized.notes):
            row("", note)
        if found := captured.minimized.conditions:
            row("conditions", found.sentence)
    if seen.is_command and not seen.is_attached:
        row(
            "exit",
            (
                f"the command ended by itself: {describe_exit(seen.exit_status)}"
                if seen.exit_status is not None
                else "reprokit ended the command"
            ),
        )
    for name, path in (
        ("run", captured.run_path),
        ("pack", captured.pack_path),
        ("issue", captured.issue_path),
        ("repro", captured.repro_path),
        ("candidate", captured.candidate_path),
        ("report", captured.report_path),
    ):
        if path:
            row(name, str(path))
    if captured.hidden:
        row("redacted", placeholder_counts.counts_sentence(captured.hidden))
    if captured.unproven:
        row("no repro", captured.unproven)
    decision = captured.decision
    if decision.action == COMMENT:
        row("comment on", f"{decision.url or decision.issue}, instead of a new issue")
    elif decision.url:
        row("file it", decision.url)
    elif verdict.kind != "ok" and decision.why:
        row("not filed", decision.why)
        for because in (
            verdict.responsible_because
            if verdict.responsible in ("user", "driver", "machine", "reprokit")
            else ()
        ):
            row("", because)
    for missing in captured.missing:
        row("missing", f"{missing.what}: {missing.why}")
    for trimmed in captured.trimmed:
        row("trimmed", trimmed)
    if captured.repro_path is not None:
        print_repro(captured.repro_path)
    row("total", f"{captured.total_s:.0f} s")
    if command := summary.next_command(captured):
        row("next", command)


def print_repro(path: Path, most_lines: int = MAX_REPRO_LINES) -> None:
    """Print a repro that is not longer than ``most_lines`` between two empty lines, so that it can
    be copied.
    """
    with host_log.suppress(OSError):
        text = path.read_text("utf-8", "replace")
        if text.count("\n") <= most_lines:
            RESULTS.print_line("")
            RESULTS.print_text(text.rstrip("\n") + "\n")
            RESULTS.print_line("")
