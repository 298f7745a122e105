"""The observation: all that is known about one run.

Every record is frozen, and :func:`to_json` turns it into JSON. Nothing here reads a file or a
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from reprokit.core.records.caches.cache_stages import CacheStage
from reprokit.core.records.caches.cache_uses import MissedEntry
from reprokit.core.records.call_growth import CallGrowth
from reprokit.core.records.claims import UsersRun
from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.records.dumps import Dump, Fault, Raised
from reprokit.core.records.memory_use import MemoryComparison
from reprokit.core.records.process_state import Evidence
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.records.recompiles import GraphBreak, RecompiledFunction
from reprokit.core.records.remarks.compiler_warnings import CompilerWarning
from reprokit.core.records.remarks.cudagraph_skips import CudagraphSkip
from reprokit.core.records.speed import Speed
from reprokit.core.records.stalls import Stall
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.result_comparison import Comparison


@dataclass(frozen=True)
class Missing:
    """Something that could not be collected or done, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Answer:
    """The result of a second, shorter run that was made to answer a question."""

    question: str
    answer: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Observation:
    """Everything that the rules need to know about a run. It is derived from the run directory."""

    about: ClassVar[type[UsersRun]] = UsersRun
    packed_as: ClassVar[str] = run_names.OBSERVATION_FILE

    exit_status: int | None = None
    """Exit status of the target; negative is a signal; None if it did not end by itself."""
    is_timed_out: bool = False
    is_interrupted: bool = False
    is_stalled: bool = False
    """The watchdog ended the run before its deadline: there was no progress for
    ``quiet_limit_s``.
    """
    deadline_s: float | None = None
    """None if there was no deadline."""
    started: float = 0.0
    """Seconds since the epoch; 0 if it is not known."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    wanted_cpu_s: float = 0.0
    """The seconds that the sampled processes ran or waited for a CPU; 0 if they are not known."""
    peak_rss_bytes: int = 0
    quiet_s: float | None = None
    """Seconds from the last sign of progress to the end, without those in which the target waited
    for a CPU; None if there was no sign of progress.
    """
    quiet_limit_s: float = 60.0
    """A run that was quiet for longer than this did not advance."""
    quiet_before_s: float = 0.0
    """The part of ``quiet_s`` before the observation, as ``attach --stalled-for`` states it."""
    last_progress: str = ""
    """What the last sign of progress was."""
    endless_line: str = ""
    """The user line that Dynamo traced more than ``--line-repeats`` times; empty if there is
    none.
    """
    endless_count: int = 0
    """How many times that line was traced."""
    endless_pace: str = ""
    """In how many seconds, and how long the rest of the loop would take, in words; empty if it is
    not known.
    """
    open_events: tuple[str, ...] = ()
    """Names of the events that began and did not end in the process that failed, outermost
    first.
    """
    position: str = ""
    """The user line that is traced, or the graph node that is lowered, from the journal."""
    last_line: str = ""
    """The user line that Dynamo traced last."""
    raised: Raised | None = None
    """The exception that ended the target."""
    compile_failures: tuple[Raised, ...] = ()
    """Exceptions that left the compiler, whether or not the program caught them."""
    faults: tuple[Fault, ...] = ()
    crash_site: CrashSite | None = None
    """The first error of a run whose C++ was built with sanitizers; None if there is none."""
    dumps: tuple[Dump, ...] = ()
    still_from: int = 0
    """The number of the first round of dumps since the last progress; 0 if it is not known. Only
    dumps from this round on show whether the program moves.
    """
    evidence: Evidence = field(default_factory=Evidence)
    """What the kernel reported about the processes while the dumps were taken."""
    stalls: tuple[Stall, ...] = ()
    """Times without progress that did not end the run."""
    on_stall: str = ""
    """The value of ``--on-stall``: ``report``, ``end``, or empty for the default."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Rank of a distributed program -> the pid of its process."""
    world_size: int = 0
    graphs_differ: str = ""
    """The rank that compiled a different graph than the others, and the first difference; empty if
    there is none.
    """
    main_pid: int | None = None
    """The process that the verdict is about: the one that raised, or that is inside the
    compiler.
    """
    working_tid: int = 0
    """The thread of ``main_pid`` that has open compiler phases; 0 if it is the main thread or
    there is none.
    """
    graphs: tuple[GraphRecord, ...] = ()
    steps: dict[str, int] = field(default_factory=dict)
    """How many lines were traced (``line``) and nodes lowered (``node``) at their last record."""
    recompiled: tuple[RecompiledFunction, ...] = ()
    """Functions that were compiled again, the worst first."""
    breaks: tuple[GraphBreak, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    """CUDA graphs that were requested and skipped."""
    remarks: tuple[CompilerWarning, ...] = ()
    """Warnings of the compiler, grouped."""
    most_breaks: int | None = None
    """The number of graph breaks that the user allows; None for any number."""
    fail_on: tuple[str, ...] = ()
    """The words of ``--fail-on``: what the user calls a failure, and PyTorch does not."""
    has_instrumentation: bool = False
    """At least one process imported the compiler, so that it could be watched."""
    not_recorded: tuple[str, ...] = ()
    """What could not be recorded because this torch lacks the functions that the agent hooks."""
    is_watched: bool = False
    """At least one process imported torch with the agent on its path."""
    has_finished: bool = False
    """The agent reported that every call of a factory target returned."""
    is_command: bool = False
    is_attached: bool = False
    """Reprokit did not start the program, and observed it for ``seconds`` while it ran."""
    has_fake_tensors: bool = False
    """The weights were fake, or the GPU was simulated: nothing was executed."""
    eager: str = ""
    """The same target without compile: ``passes``, ``fails``, ``hangs``, or empty if it was not
    run.
    """
    eager_detail: str = ""
    plain: str = ""
    """The same program in a process without reprokit: ``same`` or ``passes``; empty if that is not
    known.
    """
    why_not_plain: str = ""
    """Why it is not known, as a clause, where it matters."""
    names_reprokit: str = ""
    """What the evidence names of reprokit; empty if it names nothing."""
    answers: tuple[Answer, ...] = ()
    """The results of second, shorter runs."""
    check: str = ""
    """The line that ended the program in the run with torch.compile, and not in the one without, if
    it also ends it with ``failing_part``, where no code is generated; empty if there is none.
    """
    comparison: Comparison | None = None
    """The comparison of compiled results with eager; None if they were not compared."""
    speed: Speed | None = None
    """Warm calls, compiled and in eager; None if they were not timed."""
    memory: MemoryComparison | None = None
    """The peak of the memory beside that of eager; None if they were not compared."""
    failing_part: str = ""
    """The part of the compiler that the first failing ablation step adds; empty if it is not
    known.
    """
    departs: str = ""
    """The first operator whose result differs from eager; empty if it is not known."""
    departs_in: str = ""
    """The subsystem of ``departs``, a name of PyTorch's CompilerBisector such as ``lowerings``;
    empty if it is not known.
    """
    departure: str = ""
    """The first graph, and the first operator in it, that differs from eager by itself, in words;
    empty if it is not known.
    """
    departs_first: str = ""
    """That operator, as Dynamo names it; empty if the whole target was not compared."""
    departs_at: str = ""
    """``FILE:LINE`` of that operator; empty if the whole target was not compared."""
    broken_operator: str = ""
    """The custom operator of the program that breaks its contract in eager, ``mylib::op``; empty if
    none does.
    """
    broken_contract: str = ""
    """How, as a clause."""
    undefined: str = ""
    """The first conversion, in a second run in eager, of a float that its integer type cannot hold,
    as ``float32 to int64``; empty if there is none.
    """
    undefined_at: str = ""
    """``FILE:LINE`` of that conversion."""
    entry: str = ""
    """How the compiler was entered: one of ``entry_programs.ENTRIES``; empty if nothing says it."""
    own_backend: str = ""
    """``FILE:LINE`` of the program's own backend; empty if the backend is one of torch's."""
    own_passes: tuple[str, ...] = ()
    """``FILE:LINE`` of each of the program's own passes over graphs."""
    fails_only_with: str = ""
    """The part that the failure needs, from the ablation: ``backend``, ``passes``,
    ``dynamic=False``, or ``torch`` alone; ``nothing`` if the program fails in the same way without
    torch.compile; empty if it is not known.
    """
    is_need_of_part: bool = False
    """A part of the program showed what the failure needs, and the program itself did not run."""
    kernels: int = 0
    """The number of programs with a Triton kernel that were examined."""
    kernels_compiled: int = 0
    """How many of them compiled, now or earlier with the same Triton."""
    kernel: str = ""
    """The kernel that was compiled alone, if the observation is about one."""
    failing_kernels: tuple[str, ...] = ()
    """Other kernels that fail, with their signatures."""
    simulated: tuple[str, ...] = ()
    """The simulated device, and then its differences from a real one; empty for a real device."""
    beside: tuple[str, ...] = ()
    """For a run on a real device: the differences of a simulated run, or that there are none; empty
    if there was no simulated run.
    """
    stage: str = ""
    """The stage of a comparison of caches in which the run was the reader; empty for any other run,
    and if the writer of the cache failed.
    """
    stages: tuple[CacheStage, ...] = ()
    """The stages that ran, in their order."""
    missed: tuple[MissedEntry, ...] = ()
    """Look-ups in a cache that found no entry although there is one."""
    call_growth: CallGrowth | None = None
    """What grew over the calls of ``--calls``; None if they were not made."""
    growth: dict[str, Any] = field(default_factory=dict)
    """``growth.json`` (see core/growth/costs.py) if this was the largest of several sizes; empty if
    it was the only size.
    """
    stderr_tail: str = ""
    oom_evidence: str = ""
    """The evidence that the kernel's out-of-memory killer ended a process; empty if there is
    none.
    """
