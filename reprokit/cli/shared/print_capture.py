"""Print the result of a capture: a summary, or with ``-v`` everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

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
Rows: TypeAlias = Iterator[tuple[str, str]]
"""Rows of the result: a name, which is empty if the row belongs to the one before, and a text."""


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
    verdict = captured.verdict
    where = "" if verdict.phase in (None, "eager") else f" in {verdict.phase}"
    colour = kind_named(verdict.kind).colour
    RESULTS.print_line((verdict.kind, f"bold {colour}"), f"{where}: {verdict.reason}")
    for rows in (_of_verdict, _of_run, _of_reduction, _of_files, _of_decision):
        for name, text in rows(captured):
            RESULTS.print_line(f"{name:<10} {text}")
    if captured.repro_path is not None:
        print_repro(captured.repro_path)
    RESULTS.print_line(f"{'total':<10} {captured.total_s:.0f} s")
    if command := summary.next_command(captured):
        RESULTS.print_line(f"{'next':<10} {command}")


def _of_verdict(captured: CaptureResult) -> Rows:
    verdict = captured.verdict
    if verdict.kind == "ok":
        yield from (("", note) for note in verdict.evidence)
    if verdict.kind == "hang":
        for name in (verdict.cause or "unknown", *verdict.also):
            yield "cause", f"{name}: {EXPLAIN.get(name, '')}"
        yield from (("waits", step) for step in verdict.path[:6])
    for answer in captured.seen.answers:
        yield "tested", f"{answer.question}: {answer.answer.splitlines()[-1]}"
    yield "signature", f"{captured.signature.id}  {captured.signature.title}"
    for match in captured.known()[:MAX_KNOWN]:
        yield "known", one_line(match.sentence)
        if match.entry.url:
            yield "", match.entry.url


def _of_run(captured: CaptureResult) -> Rows:
    seen = captured.seen
    if captured.model:
        yield "model", captured.model
    if captured.weights:
        yield "weights", captured.weights
    for number, difference in enumerate(captured.verdict.simulated):
        yield "simulated" if not number else "", difference
    most = f"{seen.peak_rss_bytes / 1e6:.0f} MB at most"
    yield "cost", f"{seen.seconds:.1f} s, {seen.cpu_s:.1f} CPU-seconds, {most}"
    if seen.graphs:
        entered = sum(g.nodes for g in seen.graphs if g.is_entered)
        lowered = sum(g.nodes for g in seen.graphs if not g.is_entered)
        tracer = "exported" if any(g.level == "export" for g in seen.graphs) else "Dynamo"
        nodes = f"{plural(entered, f'{tracer} node')}, {plural(lowered, 'ATen node')}"
        yield "graphs", f"{len(seen.graphs)} recorded: {nodes}"


def _of_reduction(captured: CaptureResult) -> Rows:
    if captured.ablation and captured.ablation.sentence:
        yield "ablation", captured.ablation.sentence
    small = captured.minimized
    if small and small.text:
        yield "minimized", small.describe()
        yield "", small.describe_time()
        yield from (("", note) for note in (*small.depends_on, *small.notes))
        if small.conditions:
            yield "conditions", small.conditions.sentence


def _of_files(captured: CaptureResult) -> Rows:
    seen = captured.seen
    if seen.is_command and not seen.is_attached:
        status = seen.exit_status
        ended = "" if status is None else f"the command ended by itself: {describe_exit(status)}"
        yield "exit", ended or "reprokit ended the command"
    paths = {
        "run": captured.run_path,
        "pack": captured.pack_path,
        "issue": captured.issue_path,
        "repro": captured.repro_path,
        "candidate": captured.candidate_path,
        "report": captured.report_path,
    }
    yield from ((name, str(path)) for name, path in paths.items() if path)
    if captured.hidden:
        yield "redacted", placeholder_counts.counts_sentence(captured.hidden)
    if captured.unproven:
        yield "no repro", captured.unproven


def _of_decision(captured: CaptureResult) -> Rows:
    verdict, decision = captured.verdict, captured.decision
    if decision.action == COMMENT:
        yield "comment on", f"{decision.url or decision.issue}, instead of a new issue"
    elif decision.url:
        yield "file it", decision.url
    elif verdict.kind != "ok" and decision.why:
        yield "not filed", decision.why
        if verdict.responsible in ("user", "driver", "machine", "reprokit"):
            yield from (("", because) for because in verdict.responsible_because)
    yield from (("missing", f"{missing.what}: {missing.why}") for missing in captured.missing)
    yield from (("trimmed", trimmed) for trimmed in captured.trimmed)


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
