"""Read a run directory into the one record that the rules judge."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.judge.hangs import ranks
from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import main_process, phases
from reprokit.core.records import compiler_warnings, cudagraph_skips, recompiles
from reprokit.core.records.dumps import Fault, Frame, Link, Raised
from reprokit.core.records.journal_reader import SomeEvent, decode_events, decode_now
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared import cuts, result_comparison
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import (
    AgentProblem,
    Begin,
    Compared,
    CompileFailed,
    CudagraphSkipped,
    End,
    Event,
    ExceptionRaised,
    Finished,
    GpuSimulated,
    Graph,
    GraphBreakFound,
    GraphDone,
    KernelWritten,
    ModelSplit,
    OwnCode,
    Process,
    Progress,
    RanksSimulated,
    Recompile,
    RecompileLimit,
    SimulationGapMet,
    Torch,
    WarningShown,
    Weights,
)
from reprokit.core.shared.contract.journal_format import NOW_BYTES, Now
from reprokit.host.request.run_request import Request
from reprokit.host.run import graph_records, unrolled_loops
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import files, private_names

STDERR_TAIL_BYTES = 64_000
BEFORE_TAIL_BYTES = 64_000
"""Bytes before the tail that are also read and redacted, so that a secret that begins there is
hidden.
"""
MOST_JOURNAL_BYTES = 256 << 20
GROWTH = run_names.GROWTH_FILE
"""In the run directory of the largest of several sizes: what they cost, and by which law."""


@dataclass(frozen=True)
class Journals:
    """All journals of a run, by process."""

    by_pid: dict[int, list[Event]]
    bad_lines: int
    now: dict[int, Now]
    """What each process was at last."""

    @property
    def last_line(self) -> dict[int, str]:
        """The user line that each process journalled last."""
        found = {}
        for pid, events in self.by_pid.items():
            lines = [e.where for e in events if isinstance(e, Progress) and e.unit == "line"]
            found[pid] = lines[-1] if lines else ""
        return found

    @property
    def times(self) -> list[float]:
        """When its events were written, in seconds since the epoch."""
        return [e.t for events in self.by_pid.values() for e in events if e.t]

    def all(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        """All events of one kind, in the order of their times."""
        found = [e for events in self.by_pid.values() for e in events if isinstance(e, kind)]
        return sorted(found, key=lambda e: e.t)

    def until(self, when: float) -> Journals:
        """What had happened at ``when``, in seconds since the epoch."""
        kept = {pid: [e for e in events if e.t <= when] for pid, events in self.by_pid.items()}
        return Journals(kept, self.bad_lines, self.now)

    def last(self, kind: type[SomeEvent]) -> SomeEvent:
        """The latest event of one kind, or an empty one."""
        found = self.all(kind)
        return found[-1] if found else kind()


def read_journals(run_path: Path) -> Journals:
    """Read every ``journal/<pid>.jsonl``, cut at any byte or not."""
    by_pid: dict[int, list[Event]] = {}
    bad = 0
    for path in sorted((run_path / run_names.JOURNAL_FOLDER).glob("*.jsonl")):
        with contextlib.suppress(OSError, ValueError), files.open_plain(path) as file:
            events, wrong = decode_events(files.read_most(file, MOST_JOURNAL_BYTES))
            by_pid[int(path.stem)] = private_names.events_text(events)
            bad += wrong
    now = {}
    for path in (run_path / run_names.JOURNAL_FOLDER).glob("*.now"):
        with contextlib.suppress(OSError, ValueError), files.open_plain(path) as file:
            now[int(path.stem)] = decode_now(file.read(NOW_BYTES))
    return Journals(by_pid, bad, now)


def read_observation_of(
    request: Request, outcome: RunOutcome, run_path: Path, journals: Journals
) -> Observation:
    """Make the observation; what a run did not leave stays at its default."""
    if outcome.is_timed_out or outcome.is_interrupted:
        journals = journals.until(
            outcome.ended
        )  # what it did when it was asked to end is no evidence
    read_bytes = STDERR_TAIL_BYTES + BEFORE_TAIL_BYTES
    stderr = run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE
    end = files.read_tail(stderr, read_bytes)
    gone = stderr.stat().st_size - read_bytes if end else 0
    stderr_tail = private_names.redacted_tail(end, STDERR_TAIL_BYTES, max(0, gone))
    raised, raiser = _ending_exception(outcome, journals, end)
    alive = {
        p.pid for p in outcome.stacks.evidence.processes
    }  # those that were there when it was ended
    living = {
        pid: events for pid, events in journals.by_pid.items() if pid in alive
    } or journals.by_pid
    told = (
        main_process.describe_process(journals.by_pid, raiser)
        if raiser
        else main_process.find_main_process(living, outcome.main_pid)
    )
    pid, names = told.pid, told.open_events
    now = journals.now.get(pid, Now())
    named = phases.phase_of_events(names)
    is_tracing = named is not None and named[0] == "dynamo-trace"
    is_endless = is_tracing and now.repeats > request.line_repeats
    sizes = [e.world_size or "" for e in journals.all(Process)]
    ranks_of = main_process.ranks_of_processes(journals.by_pid)
    graphs = graph_records.read_graph_records(
        journals.all(Graph), journals.all(GraphDone), ranks_of
    )
    seen = Observation(
        exit_status=outcome.exit_status,
        is_timed_out=outcome.is_timed_out,
        is_interrupted=outcome.is_interrupted,
        is_stalled=outcome.is_stalled,
        deadline_s=request.deadline_s,
        started=outcome.started,
        seconds=outcome.seconds,
        cpu_s=outcome.cpu_s,
        peak_rss_bytes=outcome.peak_rss_bytes,
        quiet_s=outcome.quiet_s if journals.by_pid else None,
        quiet_limit_s=request.quiet_limit_s,
        last_progress=private_names.redactor().text(outcome.last_progress),
        endless_line=now.repeated if is_endless else "",
        endless_count=now.repeats if is_endless else 0,
        endless_pace=(
            unrolled_loops.loop_pace(living.get(pid or 0, []), now.repeated, now.repeats)
            if is_endless
            else ""
        ),
        open_events=names,
        position=now.where if now.where and named and named[0] in phases.FINE_HEARTBEAT else "",
        last_line=journals.last_line.get(pid, ""),
        raised=private_names.redact_raised(raised) if raised is not None else None,
        compile_failures=tuple(_raised(e) for e in journals.all(CompileFailed)),
        faults=tuple(private_names.redact_fault(f) for f in _faults(run_path, end)),
        dumps=outcome.stacks.dumps,
        still_from=outcome.still_from,
        stalls=outcome.stalls,
        on_stall=request.on_stall,
        evidence=outcome.stacks.evidence,
        main_pid=pid,
        working_tid=told.tid,
        ranks=ranks_of,
        world_size=max((int(n) for n in sizes if n.isdigit()), default=0),
        graphs=tuple(graphs),
        graphs_differ=graph_records.describe_difference(graphs, run_path),
        steps={e.unit: e.count for e in journals.by_pid.get(pid, []) if isinstance(e, Progress)},
        recompiled=recompiles.recompiled_functions(
            journals.all(Recompile), _limits(journals), _again_s(journals)
        ),
        breaks=recompiles.graph_breaks(journals.all(GraphBreakFound)),
        skips=cudagraph_skips.group_skips(journals.all(CudagraphSkipped)),
        remarks=compiler_warnings.group_warnings(journals.all(WarningShown)),
        most_breaks=request.most_breaks,
        has_instrumentation=bool(journals.all(Torch)),
        is_watched=bool(journals.all(Process)),
        has_finished=bool(journals.all(Finished)),
        is_command=request.target.kind == "command",
        has_fake_tensors=journals.last(Weights).kind == "fake",
        comparison=result_comparison.comparison_of_ranks(journals.all(Compared)),
        own_backend=next(iter(_own(e.backend for e in journals.all(OwnCode))), ""),
        own_passes=_own(place for e in journals.all(OwnCode) for place in e.passes),
        simulated=_simulated(journals),
        growth=files.read_object(run_path / GROWTH),
        stderr_tail=stderr_tail,
        oom_evidence=private_names.redactor().text(outcome.oom_evidence),
    )
    return seen if raiser else ranks.odd_one_out(seen)


def missing_of(journals: Journals, run_path: Path, request: Request) -> list[Missing]:
    """What the instrumentation could not do, in its own words."""
    found = [Missing(f"hook {e.hook}", e.problem) for e in journals.all(AgentProblem)]
    found += [
        Missing(f"kernel {e.name}", f"it could not be written down: {e.problem}")
        for e in journals.all(KernelWritten)
        if e.problem
    ]
    found += [
        Missing(
            f"simulation of {symbol}",
            "it reaches the CUDA driver and is not simulated, so the call was refused",
        )
        for symbol in dict.fromkeys(e.symbol for e in journals.all(SimulationGapMet))
    ]
    told = journals.last(ModelSplit)
    if told.left_out:
        found.append(
            Missing(
                "tensor parallel", f"not split, for want of a rule: {', '.join(told.left_out[:8])}"
            )
        )
    if told.is_split is False:
        why = "nothing was split: the model has no tp_plan, and none of its parameters is a DTensor"
        found.append(Missing("tensor parallel", why))
    if journals.bad_lines:
        found.append(
            Missing(
                "journal", f"{journals.bad_lines} lines were cut or unreadable and were skipped"
            )
        )
    dropped = sum(e.dropped for events in journals.by_pid.values() for e in events)
    if dropped:
        found.append(Missing("journal", f"{dropped} events could not be written (disk full?)"))
    if text := files.read_text(run_path / run_names.AGENT_PROBLEMS_FILE).strip():
        found.append(Missing("instrumentation", cuts.cut_head(text, 500)))
    if not journals.by_pid:
        why = "no process imported torch with the instrumentation on its path"
        if request.target.kind == "command":
            why += "; python -I, -E and a cleared environment keep it out"
        found.append(Missing("journal", why))
    return found


def _simulated(journals: Journals) -> tuple[str, ...]:
    told, alone = journals.last(GpuSimulated), journals.last(RanksSimulated).difference
    found = [alone] if alone else []
    gpu = told.gpu
    if not gpu:
        return tuple(found)
    what = (
        f"{gpu.get('name')}, compute capability {gpu.get('major')}.{gpu.get('minor')}, is not there"
    )
    return (what, *told.differences, *found)


def _own(places: Iterable[str]) -> tuple[str, ...]:
    """Where the program's own backend or passes are defined; torch's and Python's are left out."""
    return tuple(dict.fromkeys(p for p in places if p and ownership.is_own(p.rpartition(":")[0])))


def _ending_exception(
    outcome: RunOutcome, journals: Journals, stderr_tail: str
) -> tuple[Raised | None, int | None]:
    """The exception that ended the target, and who raised it: the first that is more than a
    launcher's relay.
    """
    told = [
        (_raised(e), e.pid)
        for e in journals.all(ExceptionRaised)
        if e.where in ("uncaught", "call")
    ]
    first = [(r, p) for r, p in told if not fr.RULES.is_relay(fr.root_cause(r))]
    if first or told:
        return (first or told)[0]
    if outcome.exit_status not in (0, None):
        # raised before torch was imported, or kept from our hook by another excepthook
        link = fr.parse_traceback(stderr_tail)
        if link is not None and not fr.RULES.is_relay(link):
            return Raised((link,), "stderr"), None
    return None, None


def _raised(event: ExceptionRaised | CompileFailed) -> Raised:
    links = tuple(
        Link(
            link.type,
            link.message,
            tuple(Frame(file, function, line or 0) for file, function, line in link.frames),
        )
        for link in event.chain
    )
    return Raised(
        links or (Link("Exception", "its description was cut", ()),), event.where, event.cid or ""
    )


def _faults(run_path: Path, stderr_tail: str) -> list[Fault]:
    found = []
    for path in sorted((run_path / run_names.STACKS_FOLDER).glob("faulthandler-*.txt")):
        pid = path.stem.removeprefix("faulthandler-")
        fault = fr.parse_fatal(
            files.read_text(path), int(pid) if pid.isascii() and pid.isdigit() else 0
        )
        if fault:
            found.append(fault)
    fault = fr.parse_fatal(stderr_tail, 0)
    return [*found, fault] if fault else found


def _limits(journals: Journals) -> dict[str, str]:
    """Limits of recompilation that were hit, by the number of Dynamo's frame."""
    return {recompiles.frame_of(e): e.limit for e in journals.all(RecompileLimit)}


def _again_s(journals: Journals) -> dict[str, float]:
    """Processor seconds that went into compiling a frame after the first time, by its number."""
    found: dict[str, float] = {}
    for events in journals.by_pid.values():
        opened: list[Begin] = []
        for event in events:
            if isinstance(event, Begin):
                opened.append(event)
            elif isinstance(event, End) and opened:
                begun = opened.pop()
                is_outermost = not any(o.cid for o in opened)
                if begun.cid and is_outermost and not begun.cid.endswith("/0"):
                    frame = recompiles.frame_of(begun)
                    found[frame] = found.get(frame, 0.0) + event.cpu - begun.cpu
    return found
