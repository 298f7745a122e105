"""The records that travel down the line, one dataclass a station.

Every record is frozen and turns into JSON with :func:`to_json`; nothing here reads a file or a
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reprokit.core.records.compiler_warnings import CompilerWarning
from reprokit.core.records.cudagraph_skips import CudagraphSkip
from reprokit.core.records.dumps import Dump, Fault, Raised
from reprokit.core.records.process_state import BUSY_SHARE, Evidence
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.records.recompiles import GraphBreak, RecompiledFunction
from reprokit.core.records.stalls import Stall
from reprokit.core.shared.result_comparison import Comparison


@dataclass(frozen=True)
class Missing:
    """Something that could not be collected or done, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Answer:
    """What a second, shorter run said to a question that the first one left open."""

    question: str
    answer: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Observation:
    """All that a run left, in the words of the rules. Derived: it can be made again from the run
    directory.
    """

    exit_status: int | None = None
    """Exit status of the target; negative is a signal; None when it never ended by itself."""
    is_timed_out: bool = False
    is_interrupted: bool = False
    is_stalled: bool = False
    """The watchdog ended the run before its deadline: there was no progress for
    ``quiet_limit_s``.
    """
    deadline_s: float | None = None
    """None: there was no deadline."""
    started: float = 0.0
    """Seconds since the epoch; 0 when it is not known."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    quiet_s: float | None = None
    """Seconds from the last sign of progress to the end, less those in which the target was starved
    of a processor; None when there was no sign at all.
    """
    quiet_limit_s: float = 60.0
    """A run that was quiet for longer than this did not advance."""
    last_progress: str = ""
    """What the last sign of progress was."""
    endless_line: str = ""
    """The user line that Dynamo traced more often than its budget; empty when there is none."""
    endless_count: int = 0
    endless_pace: str = ""
    """In how many seconds, and how long the rest of the loop would take, in words; empty when it is
    not known.
    """
    open_events: tuple[str, ...] = ()
    """Names of the events begun and not ended in the process that failed, outermost first."""
    position: str = ""
    """The user line that is traced, or the graph node that is lowered, as the journal tells it."""
    last_line: str = ""
    """The user line that Dynamo traced last, whatever came after."""
    raised: Raised | None = None
    """The exception that ended the target."""
    compile_failures: tuple[Raised, ...] = ()
    """Exceptions that left the compiler, whether or not the program caught them."""
    faults: tuple[Fault, ...] = ()
    dumps: tuple[Dump, ...] = ()
    still_from: int = 0
    """The first round of dumps since the last progress; 0 when that is not known. Earlier rounds
    say nothing of motion.
    """
    evidence: Evidence = field(default_factory=Evidence)
    """What the kernel said of the processes while the dumps were taken."""
    stalls: tuple[Stall, ...] = ()
    """Times without progress that did not end the run."""
    on_stall: str = ""
    """What the user asked for: ``report``, ``end``, or empty for the default."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Rank of a distributed program -> the pid of its process."""
    world_size: int = 0
    graphs_differ: str = ""
    """Which rank compiled another graph than the others, and where it departs; empty where none
    did.
    """
    main_pid: int | None = None
    """The process whose story is told: the one that raised, or that is inside the compiler."""
    working_tid: int = 0
    """The thread of ``main_pid`` that has compiler phases open; 0 when it is the main one or none
    is.
    """
    graphs: tuple[GraphRecord, ...] = ()
    steps: dict[str, int] = field(default_factory=dict)
    """How many lines were traced and nodes lowered, by ``line`` and ``node``."""
    recompiled: tuple[RecompiledFunction, ...] = ()
    """Functions that were compiled again, the worst first."""
    breaks: tuple[GraphBreak, ...] = ()
    skips: tuple[CudagraphSkip, ...] = ()
    """CUDA graphs that were asked for and not made."""
    remarks: tuple[CompilerWarning, ...] = ()
    """What the compiler warned of, grouped."""
    most_breaks: int | None = None
    """How many graph breaks the user allows; None for any number."""
    has_instrumentation: bool = False
    """At least one process imported the compiler, so that it could be watched."""
    is_watched: bool = False
    """At least one process imported torch with the agent on its path."""
    has_finished: bool = False
    """The agent reported that every call of a factory target returned."""
    is_command: bool = False
    has_fake_tensors: bool = False
    """The weights were fake, or the GPU was simulated: nothing was executed."""
    eager: str = ""
    """The same target without compile: ``passes``, ``fails``, ``hangs`` or empty (not asked)."""
    eager_detail: str = ""
    answers: tuple[Answer, ...] = ()
    """What second, shorter runs said."""
    comparison: Comparison | None = None
    """Of compiled results with eager's; None when they were not compared."""
    first_rung: str = ""
    """The part of the compiler of the first ablation step at which it fails; empty when that is not
    known.
    """
    departs: str = ""
    """The operator whose result is the first that differs; empty when that is not known."""
    departs_in: str = ""
    """What ``departs`` is one of, a name of PyTorch's CompilerBisector such as ``lowerings``; empty
    when not known.
    """
    departure: str = ""
    """The first graph, and in it the first operator, that departs from eager by itself, as words;
    empty when not known.
    """
    own_backend: str = ""
    """``FILE:LINE`` of the backend that is the program's own; empty where it is one of torch's."""
    own_passes: tuple[str, ...] = ()
    """``FILE:LINE`` of each pass over graphs that is the program's own."""
    fails_only_with: str = ""
    """What the failure needs, as the ablation found: ``backend``, ``passes``, ``torch`` alone, or
    empty: not known.
    """
    kernels: int = 0
    """How many programs of Triton kernels were looked at."""
    kernels_compiled: int = 0
    """How many of them compiled, now or before with the same Triton."""
    kernel: str = ""
    """The one that was compiled alone, and whose story this is."""
    failing_kernels: tuple[str, ...] = ()
    """Others that fail, with their signatures."""
    simulated: tuple[str, ...] = ()
    """In what the device differs from a real one, the device itself first; empty where it is
    real.
    """
    beside: tuple[str, ...] = ()
    """Of a run on a real device: in what a simulation of it differs, or that it agrees; empty where
    it was not asked.
    """
    growth: dict[str, Any] = field(default_factory=dict)
    """``growth.json`` (see core/growth/costs.py) where this was the largest of several sizes; empty
    where it was alone.
    """
    stderr_tail: str = ""
    oom_evidence: str = ""
    """What says that the kernel's out-of-memory killer was at work; empty when nothing does."""

    @property
    def busy_pids(self) -> tuple[int, ...]:
        """Processes that wanted most of a processor while the dumps were taken."""
        return tuple(p.pid for p in self.evidence.processes if (p.want or 0.0) > BUSY_SHARE)
