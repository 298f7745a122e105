"""Say what the records of a run show: the failure, where it is, and what is missing."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from reprokit.core.judge.stacks.location import plural
from reprokit.core.ranks.rank_names import rank_ranges
from reprokit.core.reported.graph_programs import BACKENDS
from reprokit.core.reported.reported_failure import ReportedFailure
from reprokit.core.reported.trace_records import (
    EXPORT,
    CompileRecord,
    RecordedDifference,
    RecordedError,
    RunRecord,
    backend_of,
    raised_by,
)

MAX_MESSAGE_CHARS = 300
MAX_REPORTED_CHARS, MAX_LOG_CHARS = 4_000, 8_000
SLOW_S = 1.0
_DEVICE = re.compile(r"(?<=[a-z]):\d+\b|, index=\d+")
"""The number of a device, which is different on each rank."""
_LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/torch/|/lib/python\d|/torchinductor_|^<")


@dataclass(frozen=True)
class RecordedVerdict:
    """What records show. Nothing was run."""

    kind: str
    """``exception``, ``wrong-result``, ``recompile-limit``, ``graph-break``, ``unknown`` or
    ``ok``.
    """
    reason: str
    """One sentence."""
    rows: tuple[tuple[str, str], ...] = ()
    """Further facts, each with its name."""
    missing: tuple[str, ...] = ()
    """What the records do not have, and what would show it."""
    reported: ReportedFailure = field(default_factory=ReportedFailure)
    """The failure, for a comparison with a run."""
    failed: CompileRecord | None = None
    traceback: str = ""
    """The traceback of the exception, as Python prints it."""

    @property
    def has_compiled(self) -> bool:
        """Whether the records show compiles, and none that failed."""
        kinds = ("ok", "graph-break", "exception", "wrong-result")
        return self.failed is None and self.kind in kinds

    @property
    def needs_pack(self) -> bool:
        """Whether the records show a failure, or end inside of a compile."""
        return self.is_failure or self.failed is not None

    @property
    def is_failure(self) -> bool:
        """Whether the records show a failure."""
        is_fine = self.kind in ("ok", "unknown") or (self.kind == "graph-break" and not self.failed)
        return not is_fine


def judge_records(runs: Sequence[RunRecord]) -> RecordedVerdict:
    """Return what the traces of all processes show; those of a rank that failed count first."""
    failing = [run for run in runs if run.failed or run.error or run.difference]
    failing.sort(
        key=lambda run: (
            not (run.error or run.difference or (run.failed is not None and run.failed.is_failure))
        )
    )
    run = (failing or list(runs))[0]
    row = run.failed if run.error is None and run.difference is None else None
    if run.error is not None:
        verdict = _of_call(run.error, run)
    elif run.difference is not None:
        verdict = _of_difference(run.difference, run)
    else:
        verdict = _of_compile(row, run) if row is not None else _of_healthy(run)
    kind, reason, reported, missing = verdict
    where = f" in rank {run.rank}" if row and run.rank is not None and len(runs) > 1 else ""
    facts = (*_differing_ranks(runs), *_facts_of(run, row))
    problems = tuple(problem for one in runs for problem in one.problems[:3])
    error = run.error or row
    return RecordedVerdict(
        kind,
        f"{reason}{where}",
        facts,
        (*missing, *problems),
        reported,
        row,
        error.traceback if error is not None else "",
    )


_Found = tuple[str, str, ReportedFailure, tuple[str, ...]]


def _of_compile(row: CompileRecord, run: RunRecord) -> _Found:
    """Return the kind, the reason, the failure and what is missing, of a compile that failed."""
    same = run.of_frame(row)
    function = row.function or next((one.function for one in same if one.function), "")
    what = f"compile {row.cid}" + (f" of {function}" if function else "")
    if not row.has_ended and not row.error:
        reason = (
            f"{what} did not end in the record: the process hung, crashed or was killed in it, or"
            " still runs"
        )
        how = "how the process ended: the record ends inside of a compile; reprokit capture sees it"
        return "unknown", reason, ReportedFailure("", torch=run.torch), (how,)
    if row.reached_limit:
        count = sum(one.has_ended and not one.error for one in same)
        why = "" if row.error == "Unsupported" else f": {row.error}"
        reason = f"{what} was refused after {plural(count, 'compile')}{why}"
        program = (
            "the program: a recompile needs its calls, and a record has graphs; run reprokit"
            " capture on the program"
        )
        limit = ReportedFailure("recompile-limit", torch=run.torch)
        return "recompile-limit", reason, limit, (() if row.call else (program,))
    error, message = raised_by(row)
    first = " ".join(message.split("\n", 1)[0].split())[:MAX_MESSAGE_CHARS]
    no_call = (row.why_no_call,) if row.why_no_call else ()
    if row.error == "Unsupported":
        broken = ReportedFailure("graph-break", torch=run.torch)
        how = "for torch.export" if row.is_export else "with fullgraph=True"
        return "graph-break", f"{what} {how}: {first}", broken, no_call
    reported = ReportedFailure(
        "exception",
        error,
        message[:MAX_REPORTED_CHARS],
        run.torch,
        words=frozenset(re.findall(r"[A-Za-z]{3,}", row.traceback[-MAX_LOG_CHARS:])),
    )
    graph = "a graph, such as where Dynamo itself raises; run reprokit capture on the program"
    has_graph = row.graphs or row.exported or row.runnables or row.call
    missing = [*([] if has_graph else [graph]), *no_call]
    if (backend := backend_of(row)) and backend not in BACKENDS:
        missing.append(f"the backend {backend}, which is not a part of torch")
    return "exception", f"{what} raised {error}: {first}".rstrip(": "), reported, tuple(missing)


def _of_call(found: RecordedError, run: RunRecord) -> _Found:
    """Return the same of an error that a compiled call raised."""
    first = " ".join(found.message.split("\n", 1)[0].split())[:MAX_MESSAGE_CHARS]
    words = frozenset(re.findall(r"[A-Za-z]{3,}", found.traceback[-MAX_LOG_CHARS:]))
    reported = ReportedFailure("exception", found.error, found.message, run.torch, words=words)
    missing = (run.why_no_call,) if run.why_no_call else ()
    return "exception", f"a compiled call raised {found.error}: {first}", reported, missing


def _of_difference(found: RecordedDifference, run: RunRecord) -> _Found:
    """Return the same of a result that differs from eager."""
    count = f" in {found.count} of {found.total} elements" if found.count else ""
    reason = (
        f"{found.name} of {found.function} differs from eager{count}, in call {found.call}:"
        f" {found.got} instead of {found.expected}"
    )
    missing = (run.why_no_call,) if run.why_no_call else ()
    return "wrong-result", reason, ReportedFailure("wrong-result", torch=run.torch), missing


def _of_healthy(run: RunRecord) -> _Found:
    rows = list(run.compiles.values())
    if run.traced_count:
        at = f" at {run.traced_to}" if run.traced_to else ""
        traced = plural(run.traced_count, "operator")
        reason = f"the trace of torch.export or make_fx failed{at}, after {traced}"
        missing = (
            "the exception, which torch does not record; run reprokit capture on the program",
        )
        return "unknown", reason, ReportedFailure("", torch=run.torch), missing
    if not rows:
        return "unknown", "no compile is recorded", ReportedFailure(), ("any compile",)
    breaks = [one for row in rows for one in row.breaks]
    unsupported = [row for row in rows if row.error]
    if breaks or unsupported:
        count = max(len(breaks), len(unsupported))
        ending = "" if unsupported else ", no compile failed"
        reason = f"{plural(count, 'graph break')} in {plural(len(rows), 'compile')}{ending}"
        missing = ("whether fullgraph=True was set, with which a graph break is an error",)
        return "graph-break", reason, ReportedFailure("", torch=run.torch), missing
    exported = sum(len(row.exported) for row in rows)
    compiles = sum(row.cid != EXPORT for row in rows)
    reason = f"{plural(compiles, 'compile')}, none failed"
    if exported and not compiles:
        reason = f"{plural(exported, 'exported program')} and no compile"
    missing = ("results and errors of compiled code: a trace has compiles only",)
    return "ok", reason, ReportedFailure("", torch=run.torch), missing


def _facts_of(run: RunRecord, row: CompileRecord | None) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    traceback = row.message + row.traceback if row is not None else ""
    if run.error is not None and row is None:
        traceback = run.error.traceback
    users = row.users_place if row is not None else ""
    if line := ("" if _LIBRARY.search(users) else users) or _line_of_error(traceback):
        facts.append(("your line", line))
    elif row is not None and (place := _place_of(run, row)):
        facts.append(("function", place))
    breaks = [one for each in run.compiles.values() for one in each.breaks]
    if breaks:
        more = f", and {len(breaks) - 1} more" if len(breaks) > 1 else ""
        at = f"{breaks[0].place}: " if breaks[0].place else ""
        facts.append(("break", f"{at}{breaks[0].reason}{more}"))
    recompiled = [one for one in run.compiles.values() if one.recompiled_because]
    if recompiled:
        guard = " ".join(recompiled[-1].recompiled_because[0].split())
        facts.append(("recompiles", f"{len(recompiled)}, the last because not {guard}"))
    slow = max(run.compiles.values(), key=lambda one: one.seconds or 0.0, default=None)
    if slow is not None and (slow.seconds or 0.0) >= SLOW_S:
        of = f" of {slow.function}" if slow.function else ""
        facts.append(("slowest", f"compile {slow.cid}{of}, {slow.seconds:.1f} s"))
    if run.cache_misses:
        facts.append(("caches", f"{plural(run.cache_misses, 'lookup')} found no entry"))
    return facts


def _place_of(run: RunRecord, row: CompileRecord) -> str:
    """Return where a function begins; a compile that was refused has it from an earlier one."""
    return row.place or next((one.place for one in run.of_frame(row) if one.place), "")


def _line_of_error(text: str) -> str:
    """Return the user's line in the traceback of an error: the last one outside of torch."""
    found = re.findall(r'File "([^"\n]{1,400})", line (\d{1,9})', text)
    own = [f"{file}:{line}" for file, line in found if not _LIBRARY.search(file)]
    return own[-1] if own else ""


def _differing_ranks(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return which ranks have a different graph of the first compile that is not equal on all."""
    ranked = {run.rank: run for run in runs if run.rank is not None}
    if len(ranked) < 2:
        return []
    for cid in sorted({cid for run in ranked.values() for cid in run.compiles}):
        texts = {rank: _shape_of(run.compiles.get(cid)) for rank, run in ranked.items()}
        counts = collections.Counter(texts.values()).most_common()
        if len(counts) == 1:
            continue
        most = counts[0][0]
        odd = [rank for rank, text in texts.items() if text != most and rank is not None]
        is_sure = counts[0][1] > counts[1][1]
        if not is_sure:
            return [("ranks", f"the graphs of compile {cid} differ between the ranks")]
        verb = "has" if len(odd) == 1 else "have"
        graph = "no graph" if all(not texts[rank] for rank in odd) else "a different graph"
        return [("ranks", f"rank {rank_ranges(odd)} {verb} {graph} of compile {cid}")]
    return []


def _shape_of(row: CompileRecord | None) -> str:
    """Return the code of the graphs of a compile, without comments and numbers of devices."""
    lines = (line for text in (row.graphs if row else ()) for line in text.splitlines())
    code = "\n".join(line.strip() for line in lines if line.strip() and "# " not in line)
    return _DEVICE.sub("", code)
