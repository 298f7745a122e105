"""Read a run directory into an Observation, the record that the rules judge."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.judge.hangs import ranks, waiting
from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import main_process, phases
from reprokit.core.records import recompiles
from reprokit.core.records.caches import cache_stages, cache_uses
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.journal_reader import SomeEvent, decode_events, decode_now
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.records.remarks import compiler_warnings, cudagraph_skips
from reprokit.core.shared import result_comparison
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.cache_events import CacheUsed
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import (
    ANY_FOLDER,
    AgentProblem,
    Begin,
    CompileFailed,
    ConfigChanged,
    CudagraphSkipped,
    End,
    ExceptionRaised,
    Finished,
    GpuSimulated,
    Graph,
    GraphBreakFound,
    GraphDone,
    OwnCode,
    Process,
    Progress,
    RanksSimulated,
    Recompile,
    RecompileLimit,
    SameRanks,
    TargetBuilt,
    Torch,
    WarningShown,
    Weights,
)
from reprokit.core.shared.contract.journal_format import NOW_BYTES, Now
from reprokit.core.shared.contract.result_events import (
    Compared,
    ContractBroken,
    UndefinedConversion,
)
from reprokit.core.shared.source import entry_programs
from reprokit.host.request.run_request import Request
from reprokit.host.run import graph_records, stack_sources, unrolled_loops
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import files, host_log, private_names

STDERR_TAIL_BYTES = 64_000
"""The end of stderr that an observation has. More is read and redacted, so that a secret is hidden
that begins before it.
"""
MAX_JOURNAL_BYTES = 256 << 20


@dataclass(frozen=True)
class Journals:
    """All journals of a run, by process."""

    by_pid: dict[int, list[Event]]
    bad_lines: int
    now: dict[int, Now]
    """The last position of each process."""

    @property
    def last_line(self) -> dict[int, str]:
        """The last user line in the journal of each process."""
        last = {}
        for pid, events in self.by_pid.items():
            lines = [e.where for e in events if isinstance(e, Progress) and e.unit == "line"]
            last[pid] = lines[-1] if lines else ""
        return last

    @property
    def times(self) -> list[float]:
        """The times of all events, in seconds since the epoch."""
        return [e.t for events in self.by_pid.values() for e in events if e.t]

    def events_of_type(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        """Return all events of one type, ordered by time."""
        chosen = [e for events in self.by_pid.values() for e in events if isinstance(e, kind)]
        return sorted(chosen, key=lambda e: e.t)

    def events_before(self, when: float) -> Journals:
        """Return the journals with the events until ``when``, in seconds since the epoch."""
        kept = {pid: [e for e in events if e.t <= when] for pid, events in self.by_pid.items()}
        return Journals(kept, self.bad_lines, self.now)

    def last_event_of_type(self, kind: type[SomeEvent]) -> SomeEvent:
        """Return the last event of one type, or an empty event."""
        events = self.events_of_type(kind)
        return events[-1] if events else kind()


def settings_not_default(
    journals: Journals, torch_defaults: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the compiler settings of the last compile that are not torch's defaults, as module ->
    setting -> value.

    ``torch_defaults`` are those of a fresh process. Without them, nothing is known: what the
    program changed may be the default again.
    """
    last = journals.last_event_of_type(ConfigChanged)
    if not torch_defaults:
        return {}
    of_process = (
        [event for event in events if isinstance(event, ConfigChanged)]
        for events in journals.by_pid.values()
    )
    defaults = next((own[0].defaults for own in of_process if own and own[-1] is last), {})
    found: dict[str, dict[str, str]] = {}
    for module in sorted({*defaults, *last.changed}):
        usual = torch_defaults.get(module, {})
        values = {**defaults.get(module, {}), **last.changed.get(module, {})}
        rows = {
            key: value for key, value in values.items() if not _is_default(value, usual.get(key))
        }
        if rows:
            found[module] = rows
    return found


def _is_default(value: str, default: str | None) -> bool:
    if default is None or ANY_FOLDER not in default:
        return value == default
    # repr() quotes a text with a quote in a different way
    parts = map(re.escape, default.strip("'\"").split(ANY_FOLDER))
    return re.fullmatch(".*".join(parts), value.strip("'\""), re.DOTALL) is not None


def read_journals(run_path: Path) -> Journals:
    """Read all ``journal/<pid>.jsonl``, which may be cut at any byte."""
    by_pid: dict[int, list[Event]] = {}
    bad = 0
    for path in sorted((run_path / run_names.JOURNAL_FOLDER).glob("*.jsonl")):
        with host_log.suppress(OSError, ValueError), files.open_regular_file(path) as file:
            events, wrong = decode_events(files.read_at_most(file, MAX_JOURNAL_BYTES))
            by_pid[int(path.stem)] = private_names.redact_events(events)
            bad += wrong
    now = {}
    for path in (run_path / run_names.JOURNAL_FOLDER).glob("*.now"):
        with host_log.suppress(OSError, ValueError), files.open_regular_file(path) as file:
            now[int(path.stem)] = decode_now(file.read(NOW_BYTES))
    return Journals(by_pid, bad, now)


def read_observation(
    request: Request, outcome: RunOutcome, run_path: Path, journals: Journals
) -> Observation:
    """Return the observation of a run; fields without data have their defaults."""
    if outcome.is_timed_out or outcome.is_interrupted:
        # the reaction to the signal that ended it is not evidence
        journals = journals.events_before(outcome.ended)
    read_bytes = stack_sources.STDERR_BYTES
    stderr = run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE
    end = files.read_tail(stderr, read_bytes)
    gone = stderr.stat().st_size - read_bytes if end else 0
    stderr_tail = private_names.redact_tail(end, STDERR_TAIL_BYTES, max(0, gone))
    raised, raiser = _ending_exception(outcome, journals, end)
    # the processes at the end of the run
    alive = {
        p.pid for p in outcome.stacks.evidence.processes if p.states.strip("ZX") or not p.states
    }
    living = {
        pid: events for pid, events in journals.by_pid.items() if pid in alive
    } or journals.by_pid
    main = (
        main_process.describe_process(journals.by_pid, raiser)
        if raiser
        else main_process.find_observed(outcome.stacks.dumps, living, outcome.main_pid)
        if request.attached_pid
        else main_process.find_main_process(living, outcome.main_pid)
    )
    pid, names = main.pid, main.open_events
    now = journals.now.get(pid, Now())
    named = phases.phase_of_events(names)
    is_tracing = named is not None and named[0] == "dynamo-trace"
    is_endless = is_tracing and now.repeats > request.line_repeats
    # the record may be of an earlier phase or graph
    is_of_phase = named is not None and phases.FINE_HEARTBEAT.get(named[0]) == now.unit
    where = now.repeated if is_endless else now.where  # where in a loop it ended is chance
    evidence = outcome.stacks.evidence
    sizes = [e.world_size or "" for e in journals.events_of_type(Process)]
    ranks_of = main_process.ranks_of_processes(journals.by_pid)
    if request.attached_pid:
        sizes = [p.world_size for p in evidence.processes]
        ranks_of = main_process.ranks_of_evidence(evidence)
    graphs = graph_records.read_graph_records(
        journals.events_of_type(Graph),
        journals.events_of_type(GraphDone),
        ranks_of,
        journals.last_event_of_type(SameRanks),
    )
    failing_pid = raiser or (pid if outcome.is_timed_out else None)
    stage, compared = _reader_of_stage(request, outcome, journals, failing_pid)
    converted = journals.last_event_of_type(UndefinedConversion)
    broken = next(iter(journals.events_of_type(ContractBroken)), ContractBroken())
    seen = Observation(
        exit_status=outcome.exit_status,
        is_timed_out=outcome.is_timed_out,
        is_interrupted=outcome.is_interrupted,
        is_stalled=outcome.is_stalled,
        deadline_s=request.deadline_s,
        started=outcome.started,
        seconds=outcome.seconds,
        cpu_s=outcome.cpu_s,
        wanted_cpu_s=_wanted_cpu_s(files.read_text(run_path / run_names.SAMPLES_FILE)),
        peak_rss_bytes=outcome.peak_rss_bytes,
        quiet_s=outcome.quiet_s if journals.by_pid or request.attached_pid else None,
        quiet_limit_s=request.quiet_limit_s,
        quiet_before_s=outcome.quiet_before_s,
        last_progress=private_names.get_redactor().redact_text(outcome.last_progress),
        endless_line=now.repeated if is_endless else "",
        endless_count=now.repeats if is_endless else 0,
        endless_pace=(
            unrolled_loops.loop_pace(living.get(pid or 0, []), now.repeated, now.repeats)
            if is_endless
            else ""
        ),
        open_events=names,
        position=where if is_of_phase else "",
        last_line=journals.last_line.get(pid, ""),
        raised=private_names.redact_raised(raised) if raised is not None else None,
        compile_failures=tuple(_raised(e) for e in journals.events_of_type(CompileFailed)),
        faults=tuple(
            private_names.redact_fault(f) for f in stack_sources.read_faults(run_path, end)
        ),
        dumps=outcome.stacks.dumps,
        still_from=outcome.still_from,
        stalls=outcome.stalls,
        on_stall=request.on_stall,
        evidence=evidence,
        main_pid=pid,
        working_tid=main.tid,
        ranks=ranks_of,
        world_size=max((int(n) for n in sizes if n.isdigit()), default=0),
        graphs=tuple(graphs),
        graphs_differ=graph_records.describe_difference(graphs, run_path),
        steps={e.unit: e.count for e in journals.by_pid.get(pid, []) if isinstance(e, Progress)},
        recompiled=recompiles.recompiled_functions(
            journals.events_of_type(Recompile), _limits(journals), _again_s(journals)
        ),
        breaks=recompiles.graph_breaks(journals.events_of_type(GraphBreakFound)),
        skips=cudagraph_skips.group_skips(journals.events_of_type(CudagraphSkipped)),
        remarks=compiler_warnings.group_warnings(journals.events_of_type(WarningShown)),
        most_breaks=request.most_breaks,
        fail_on=request.fail_on,
        has_instrumentation=bool(journals.events_of_type(Torch)),
        not_recorded=tuple(
            dict.fromkeys(e.records for e in journals.events_of_type(AgentProblem) if e.records)
        ),
        is_watched=bool(journals.events_of_type(Process)),
        has_finished=bool(journals.events_of_type(Finished)),
        is_command=request.target.kind == "command",
        is_attached=bool(request.attached_pid),
        has_fake_tensors=journals.last_event_of_type(Weights).kind == "fake",
        comparison=result_comparison.comparison_of_ranks(compared),
        broken_operator=broken.operator,
        broken_contract=broken.problem,
        undefined=converted.types,
        undefined_at=converted.where,
        entry=_entry(journals, graphs),
        own_backend=next(iter(_own(e.backend for e in journals.events_of_type(OwnCode))), ""),
        own_passes=_own(place for e in journals.events_of_type(OwnCode) for place in e.passes),
        simulated=_simulated(journals),
        stage=stage,
        missed=_missed(outcome, journals) if request.has_writer and stage else (),
        growth=files.read_json_object(run_path / run_names.GROWTH_FILE),
        stderr_tail=stderr_tail,
        oom_evidence=private_names.get_redactor().redact_text(outcome.oom_evidence),
    )
    seen = stack_sources.name_own_functions(seen, run_path)
    choose = waiting.choose_stuck_thread if request.attached_pid else waiting.choose_cycle
    seen = choose(seen)
    return seen if raiser else ranks.choose_waiting_rank(seen)


def _entry(journals: Journals, graphs: Sequence[GraphRecord]) -> str:
    """Return how the compiler was entered, as the factory or an exported graph says."""
    entry = journals.last_event_of_type(TargetBuilt).entry
    if entry in ("", entry_programs.COMPILE) and any(g.level == "export" for g in graphs):
        return entry_programs.AOTINDUCTOR
    return entry


def _reader_of_stage(
    request: Request, outcome: RunOutcome, journals: Journals, failing_pid: int | None
) -> tuple[str, list[Compared]]:
    """Return the stage of a run, and the comparisons of results that count for it.

    In a program of two processes the first process of the run is the reader of the cache, and its
    child is the writer. The stage is empty if the writer fails: that is no failure of the cache.
    """
    compared = journals.events_of_type(Compared)
    if not request.has_writer:
        return request.stage, compared
    own = [e for e in compared if e.pid == outcome.main_pid]
    of_writer = result_comparison.comparison_of_ranks(e for e in compared if e not in own)
    # with a changed setting, the results of eager are those of the reader
    is_alike = request.stage != cache_stages.CHANGED
    is_writer_wrong = is_alike and of_writer is not None and bool(of_writer.wrong)
    if is_writer_wrong or failing_pid not in (None, outcome.main_pid):
        return "", compared
    return request.stage, own


def _missed(outcome: RunOutcome, journals: Journals) -> tuple[cache_uses.MissedEntry, ...]:
    """Return the missed entries of a program of two processes; its first process is the reader."""
    uses = journals.events_of_type(CacheUsed)
    wrote = [use for use in uses if use.pid != outcome.main_pid]
    reads = [use for use in uses if use.pid == outcome.main_pid]
    graphs = [e for e in journals.events_of_type(Graph) if e.pid == outcome.main_pid]
    missed = cache_uses.missed_entries(cache_uses.stored_keys(wrote), wrote, reads)
    count = sum(graph.level == "dynamo" for graph in graphs)
    return missed + cache_uses.unused_precompiled_code(reads, count)


def _simulated(journals: Journals) -> tuple[str, ...]:
    """Return how the simulation of a GPU or of ranks differs from real ones."""
    event = journals.last_event_of_type(GpuSimulated)
    of_ranks = journals.last_event_of_type(RanksSimulated).difference
    differences = [of_ranks] if of_ranks else []
    gpu = event.gpu
    if not gpu:
        return tuple(differences)
    device = (
        f"{gpu.get('name')}, compute capability {gpu.get('major')}.{gpu.get('minor')}, is not there"
    )
    return (device, *event.differences, *differences)


def _own(places: Iterable[str]) -> tuple[str, ...]:
    """Return the locations of backends or passes that the program itself defines."""
    return tuple(dict.fromkeys(p for p in places if p and ownership.is_own(p.rpartition(":")[0])))


def _ending_exception(
    outcome: RunOutcome, journals: Journals, stderr_tail: str
) -> tuple[Raised | None, int | None]:
    """Return the exception that ended the target, and the pid of the process that raised it.

    An exception in which a launcher only reports the failure of a child is the last choice.
    """
    raised = [
        (_raised(e), e.pid)
        for e in journals.events_of_type(ExceptionRaised)
        if e.where in ("uncaught", "call")
    ]
    causes = [(r, p) for r, p in raised if not fr.RULES.is_relay(fr.root_cause(r))]
    if causes or raised:
        return (causes or raised)[0]
    if outcome.exit_status not in (0, None):
        # raised before torch was imported, or hidden from the agent by a different excepthook
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
    nodes = event.nodes if isinstance(event, CompileFailed) else []
    return Raised(
        links or (Link("Exception", "its description was cut", ()),),
        event.where,
        event.cid or "",
        tuple((row[0], row[1]) for row in nodes if len(row) == 2),
    )


def _wanted_cpu_s(samples: str) -> float:
    """Return the seconds that the processes of ``samples.csv`` ran or waited for a CPU, each until
    its last sample.
    """
    last: dict[str, float] = {}
    for row in csv.DictReader(io.StringIO(samples)):
        with host_log.suppress(KeyError, TypeError, ValueError):
            if row["pid"] != "0":  # a GPU
                last[row["pid"]] = float(row["want_s"])
    return round(sum(last.values()), 3)


def _limits(journals: Journals) -> dict[str, str]:
    """Return the reached limits of recompilation, by the number of Dynamo's frame."""
    return {recompiles.frame_of_event(e): e.limit for e in journals.events_of_type(RecompileLimit)}


def _again_s(journals: Journals) -> dict[str, float]:
    """Return the CPU seconds of recompiling each frame, by its number."""
    seconds: dict[str, float] = {}
    for events in journals.by_pid.values():
        opened: list[Begin] = []
        for event in events:
            if isinstance(event, Begin):
                opened.append(event)
            elif isinstance(event, End) and opened:
                begin = opened.pop()
                is_outermost = not any(o.cid for o in opened)
                if begin.cid and is_outermost and not begin.cid.endswith("/0"):
                    frame = recompiles.frame_of_event(begin)
                    seconds[frame] = seconds.get(frame, 0.0) + event.cpu - begin.cpu
    return seconds
