"""Gather the data of the report of one run: cause, evidence, timeline, stacks.

The report consists of JSON values. It is redacted, and then written into the pack as
``report.json``, which ``report.html`` and ``reprokit show`` present.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprokit.core.judge.hangs import hang_causes, ranks
from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.responsible import responsibility
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import main_stacks, still_frames
from reprokit.core.judge.stacks.location import plural
from reprokit.core.judge.stacks.recent_dumps import only_recent, stack_place, threads_of
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import SCHEMA
from reprokit.host.report import flamegraph, timeline, waiting_lines
from reprokit.host.report.report_model import (
    FrameRow,
    ProcessRow,
    ReportHead,
    ReportModel,
    StackRow,
)
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files
from reprokit.host.watch import stacks

MAX_FRAMES = 40
MAX_PROCESSES = 40
MAX_ROUNDS = 400
"""Rounds of dumps that a report has."""


def make_report_data(
    verdict: Verdict,
    signature: Signature,
    seen: Observation,
    journals: Journals,
    run_path: Path,
    head: ReportHead,
    ablation: dict[str, Any] | None = None,
) -> ReportModel:
    """Return the report. The caller must redact all of it but ``head``, which is redacted."""
    began, ended = run_times(journals, seen)
    names = rank_names(seen)
    samples = files.read_text(run_path / run_names.SAMPLES_FILE)
    return {
        "schema": SCHEMA,
        "head": head,
        "title": signature.title,
        "signature": signature.id,
        "kind": verdict.kind,
        "phase": verdict.phase,
        "cause": verdict.cause,
        "reason": verdict.reason,
        "explain": hang_causes.explain_cause(verdict),
        "detail": verdict.detail,
        "responsible": verdict.responsible,
        "responsible_because": list(verdict.responsible_because),
        "not_filed": responsibility.why_not_filed(verdict) if verdict.kind != "ok" else "",
        "also": hang_causes.explain_also(verdict),
        "path": list(verdict.path),
        "waits": waiting_lines.waiting_lines(verdict, seen),
        "work": verdict.work,
        "evidence": [*verdict.evidence, *map(str, seen.remarks)],
        "eager": seen.eager_detail,
        "growth": seen.growth,
        "ablation": ablation or {},
        "answers": [
            {"question": a.question, "answer": a.answer, "seconds": a.seconds} for a in seen.answers
        ],
        "timeline": timeline.make_timeline(journals.by_pid, seen.ranks, samples, began, ended),
        "flame": flamegraph.stack_tree(stacks.read_dumps(run_path, MAX_ROUNDS), names),
        "stacks": _stacks(seen),
        "processes": [_process(seen, p.pid) for p in seen.evidence.processes[:MAX_PROCESSES]],
        "tools": [
            {
                "round": d.number,
                "tool": d.tool,
                "pid": d.pid,
                "said": d.problem or plural(len(d.threads), "thread"),
            }
            for d in seen.dumps[-64:]
        ],
    }


def rank_names(seen: Observation) -> dict[int, str]:
    """Return the name of each process that is a rank."""
    return {pid: f"rank {rank}" for rank, pid in seen.ranks.items()}


def run_times(journals: Journals, seen: Observation) -> tuple[float, float]:
    """Return the start and the end of a run, in seconds since the epoch."""
    times = journals.times
    began = seen.started or min(times, default=0.0)
    return began, max([began + seen.seconds, *times])


def _stacks(seen: Observation) -> list[StackRow]:
    """Return the last stacks: one for each group of ranks with the same stack, or one for each
    thread. The most important is first.
    """
    if len(seen.ranks) > 1 and seen.evidence.processes:
        rows: list[StackRow] = []
        for group in ranks.merged_views(ranks.rank_views(seen)):
            names = ", ".join(view.rank for view in group)
            who = f"rank{'s' if len(group) > 1 else ''} {names}"
            rows.append({"who": who, "told": group[0].summary, "frames": _frames(group[0].frames)})
        return rows
    rows = []
    is_compared = len(main_stacks(only_recent(seen))) > 1
    stable = {fr.show_frame(f) for f in still_frames(seen)} if is_compared else None
    last = threads_of(seen, seen.main_pid or 0)[-1:]
    threads = (
        sorted(last[0], key=lambda t: (t.tid != seen.working_tid, not t.is_main)) if last else []
    )
    for thread in threads:
        if is_service(thread):
            continue
        is_working = thread.tid == seen.working_tid or (thread.is_main and not seen.working_tid)
        frames = fr.normalise_frames(thread.frames)
        rows.append(
            {
                "who": f"thread {thread.thread}",
                "told": f"is at {stack_place(thread.frames)}",
                "frames": _frames(frames, stable if is_working else None),
            }
        )
    return rows[:24]


def _frames(frames: Sequence[Frame], stable: set[str] | None = None) -> list[FrameRow]:
    return [
        {
            "function": f.function,
            "place": f"{f.file}:{f.line}",
            "has_moved": None if stable is None else fr.show_frame(f) not in stable,
        }
        for f in frames[:MAX_FRAMES]
    ]


def _process(seen: Observation, pid: int) -> ProcessRow:
    process = seen.evidence.process_of_pid(pid)
    assert process is not None
    main = next((t for t in process.threads if t.tid == pid), None)
    waits = f"{main.syscall} {main.waits_for}".strip() if main else ""
    return {
        "pid": pid,
        "ppid": process.ppid,
        "states": process.states,
        "want": process.want,
        "rss_bytes": process.rss_bytes,
        "threads": len(process.threads),
        "waits": waits,
        "command": cuts.cut_head(process.command, 300),
    }
