"""Print the result of a capture, and the report of a pack: cause, phases, measures and stacks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprokit.cli.shared import summary
from reprokit.cli.shared.out import RESULTS, SETTINGS, Echo, one_line
from reprokit.core.judge.hangs.hang_causes import EXPLAIN
from reprokit.core.records.process_state import describe_exit
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.triage.decision import COMMENT
from reprokit.host.pack import placeholder_counts
from reprokit.host.system import host_log

if TYPE_CHECKING:
    from reprokit.host.pipeline.capture_result import CaptureResult

BAR_CHARS = 40
MAX_FRAMES = 12
MAX_KNOWN = 3
"""Limit of printed known failures."""
MAX_LINE_CHARS, MAX_LABEL_CHARS = 2_000, 40
MAX_ROWS = 200
"""Limit of printed rows of one list of a report."""
MAX_POINTS = 10_000
MAX_REPRO_LINES = 100
"""A longer repro is only named, not printed."""
MAX_SHORT_LINES = 15
"""A longer repro is not printed after a summary."""
_LEVELS = "▁▂▃▄▅▆▇█"
_PLAIN_LEVELS = ".:-=+*#@"


def print_report(model: dict[str, Any]) -> None:
    """Print ``report.json`` of a pack.

    A stranger may have written it, so each value is checked and the output is limited.
    """

    def line(text: object, style: str = "") -> None:
        RESULTS.print_line((one_line(_text(text)), style))

    line(model.get("reason"), "bold")
    for text in (model.get("explain"), *(f"also {_text(row)}" for row in _rows(model, "also"))):
        if text:
            line(text)
    if model.get("not_filed"):
        line(f"do not file it: {_text(model.get('not_filed'))}")
    for name, value in [*_dict(model.get("work")).items()][:MAX_ROWS]:
        line(f"{name}: {_text(value)}")
    for answer in _dicts(model, "answers"):
        line(f"{_text(answer.get('question'))}: {_text(answer.get('answer'))}")
    for row in (*_rows(model, "path"), *_rows(model, "evidence")):
        line(f"- {_text(row)}")
    print_table(_dict(model.get("growth")))
    if sentence := _dict(model.get("ablation")).get("sentence"):
        line(sentence)
    timeline = _dict(model.get("timeline"))
    _phases(_dicts(timeline, "phases"))
    for series in _dicts(timeline, "series"):
        values = [
            p[1] for p in _rows(series, "points", MAX_POINTS) if isinstance(p, list) and len(p) == 2
        ]
        numbers = _finite(values)
        if numbers:
            name = one_line(_text(series.get("name")), MAX_LABEL_CHARS)
            RESULTS.print_line(
                f"{name:<18} {_spark(numbers)} at most {_amount(max(numbers), series.get('unit'))}"
            )
    for stack in _dicts(model, "stacks")[:8]:
        line(f"{_text(stack.get('who'))}: {_text(stack.get('told'))}", "bold")
        frames = _rows(stack, "frames", MAX_POINTS)
        for frame in (f for f in frames[:MAX_FRAMES] if isinstance(f, dict)):
            mark = " (moved)" if frame.get("has_moved") else ""
            text = one_line(f"{_text(frame.get('function'))}  {_text(frame.get('place'))}{mark}")
            RESULTS.print_line(f"    {text}")
        if len(frames) > MAX_FRAMES:
            RESULTS.print_line(f"    ... {len(frames) - MAX_FRAMES} more")


def print_table(growth: dict[str, Any]) -> None:
    """Print the measurements of ``growth.json`` for each size."""
    for row in _rows(growth, "table"):
        RESULTS.print_line(_text(row)[:MAX_LINE_CHARS])


def _phases(rows: list[dict[str, Any]]) -> None:
    seconds = [(_text(r.get("phase")), s) for r in rows for s in _finite([r.get("seconds")])]
    most = max((s for _, s in seconds), default=0.0)
    for phase, spent in seconds[:12]:
        mark = "#" if RESULTS.is_plain else "█"
        bar = mark * max(1, round(spent / most * BAR_CHARS)) if most > 0 else ""
        RESULTS.print_line(f"{one_line(phase, MAX_LABEL_CHARS)[:16]:<16} {spent:>8.2f} s  {bar}")


def _finite(values: list[Any]) -> list[float]:
    """Return the numbers of a stranger's list that can be drawn."""
    return [float(v) for v in values if isinstance(v, (int, float)) and abs(v) < 1e15]


def _spark(values: list[float]) -> str:
    levels = _PLAIN_LEVELS if RESULTS.is_plain else _LEVELS
    width = min(len(values), BAR_CHARS)
    chosen = [values[i * len(values) // width] for i in range(width)]
    most = max(max(chosen), 1e-9)
    return "".join(
        levels[min(int(max(v, 0.0) / most * (len(levels) - 1)), len(levels) - 1)] for v in chosen
    )


def _amount(value: float, unit: object) -> str:
    return (
        f"{value / 1e6:.0f} MB"
        if unit == "bytes"
        else f"{value:.0%}"
        if unit == "share"
        else f"{value:.1f}"
    )


def _text(value: object) -> str:
    """Return a text, or the head and the tail of a long one, so that cleaning it is fast."""
    text = (
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, (int, float))
        else _of_holder(value)
    )
    return (
        text
        if len(text) <= MAX_LINE_CHARS
        else f"{text[: MAX_LINE_CHARS // 2]} ... {text[-MAX_LINE_CHARS // 2 :]}"
    )


def _of_holder(value: object) -> str:
    return (
        "none"
        if value is None
        else f"{type(value).__name__} of {len(value)}"
        if isinstance(value, (list, dict))
        else ""
    )


def _rows(holder: dict[str, Any], name: str, limit: int | None = None) -> list[Any]:
    value = holder.get(name)
    return value[: MAX_ROWS if limit is None else limit] if isinstance(value, list) else []


def _dicts(holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in _rows(holder, name) if isinstance(row, dict)]


def _dict(value: Iterable[Any] | None) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
            f"{len(seen.graphs)} recorded: {entered} {tracer} nodes, {lowered} ATen nodes",
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
                else "the command was ended by reprokit"
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
        row("no repro", f"nothing proves one: {captured.unproven}")
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
