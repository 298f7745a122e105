"""The events of a journal: one dataclass each, written by the agent and read by the host.

A line of a journal is a JSON object: ``ev`` names the class, the other keys are its fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .event_base import PRIVATE, ChainLink, Event

DYNAMO_GRAPHS = "Dynamo's graphs"
"""The value of ``AgentProblem.records`` if no graph can be recorded with this torch."""


@dataclass(frozen=True, kw_only=True)
class Process(Event):
    """A process that imports torch or Triton, or its forked child."""

    ev = "process"
    ppid: int = 0
    argv: list[str] = field(default_factory=list)
    executable: str = ""
    python: str = ""
    cwd: str = ""
    forked: bool = False
    can_dump: bool | None = None
    """Whether faulthandler responds to the host's signal; None if that is not known."""
    rank: str | None = None
    world_size: str | None = None


@dataclass(frozen=True, kw_only=True)
class Exit(Event):
    """The process ends by itself."""

    ev = "exit"
    cpu_s: float = 0.0
    max_rss_kib: int = 0


@dataclass(frozen=True, kw_only=True)
class Torch(Event):
    """The process imported the compiler."""

    ev = "torch"
    version: str = ""
    file: str | None = None
    cuda: str | None = None
    hip: str | None = None


@dataclass(frozen=True, kw_only=True)
class AgentProblem(Event):
    """The instrumentation failed to do something, or this torch lacks a symbol that it needs."""

    ev = "agent_problem"
    hook: str = ""
    """The function of the agent that failed."""
    records: str = ""
    """What is not recorded because this torch lacks a symbol; empty for another problem."""
    problem: str = field(default="", metadata=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class TraceDropped(Event):
    """The trace of the process reached its limit."""

    ev = "trace_dropped"
    cids: list[str] = field(default_factory=list)
    """The compiles whose records were dropped, the oldest first."""
    cut: str = ""
    """The compile whose further records were not written, because nothing else could be dropped."""
    limit: int = 0
    """Of all traces of the run, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Begin(Event):
    """A phase of the compiler, or a stage of the target, begins."""

    ev = "begin"
    name: str = ""
    cid: str | None = None
    """Dynamo's compile id, such as ``0/1``."""
    cpu: float = 0.0
    """CPU seconds of the process so far."""


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """A phase or a stage ends."""

    ev = "end"
    name: str = ""
    cpu: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """A user line was traced, or a graph node lowered; at most one event per half second."""

    ev = "progress"
    unit: str = ""
    count: int = 0
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph(Event):
    """A graph that is about to be compiled."""

    ev = "graph"
    n: int | None = None
    """The number of its folder; None if it was not written."""
    level: str = ""
    """``dynamo``, ``export`` or ``aten``."""
    cid: str | None = None
    nodes: int = 0
    backward: bool = False
    calls: list[list[str]] = field(default_factory=list)
    """Its collectives: each name with its argument, and the user's line."""
    digest: str = ""
    problem: str = field(default="", metadata=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class GraphDone(Event):
    """A graph was compiled."""

    ev = "graph_done"
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class RaisedEvent(Event):
    """The fields of the two events about exceptions."""

    where: str = ""
    """The hook that saw it: ``uncaught``, ``call``, ``thread`` or ``compile``."""
    cid: str | None = None
    chain: tuple[ChainLink, ...] = ()
    """From the outermost exception to the innermost cause."""


@dataclass(frozen=True, kw_only=True)
class ExceptionRaised(RaisedEvent):
    """An exception that the program did not catch."""

    ev = "exception"


@dataclass(frozen=True, kw_only=True)
class CompileFailed(RaisedEvent):
    """An exception that left the compiler, whether or not the program caught it."""

    ev = "compile_failed"
    nodes: list[list[str]] = field(default_factory=list)
    """The nodes of the graph on which Inductor worked: the name and the user's line of each."""


@dataclass(frozen=True, kw_only=True)
class WarningShown(Event):
    """A warning of Python, or a record of torch's logs."""

    ev = "warning"
    category: str = ""
    """The class of the warning, or the name of the logger."""
    message: str = field(default="", metadata=PRIVATE)
    file: str = ""
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class Recompile(Event):
    """A function is compiled again."""

    ev = "recompile"
    function: str | None = None
    file: str | None = None
    line: int | None = None
    cid: str | None = None
    caller: str = ""
    """``file:line`` of the user's line that calls the function."""
    reasons: list[str] = field(default_factory=list, metadata=PRIVATE)
    also: list[str] = field(default_factory=list, metadata=PRIVATE)
    """Guards on numbers of the newest compile that fail too: ``self.n == 3``."""


@dataclass(frozen=True, kw_only=True)
class RecompileLimit(Event):
    """Dynamo gave up a function because it was compiled too many times."""

    ev = "recompile_limit"
    limit: str = ""
    cid: str | None = None


@dataclass(frozen=True, kw_only=True)
class GraphBreakFound(Event):
    """Dynamo ended a graph."""

    ev = "graph_break"
    reason: str = field(default="", metadata=PRIVATE)
    detail: str = field(default="", metadata=PRIVATE)
    where: str = ""
    caller: str = ""
    """``file:line`` of the user's line: that of the break, or the one that calls it."""
    is_given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class CudagraphSkipped(Event):
    """Inductor skips a CUDA graph."""

    ev = "cudagraph_skip"
    message: str = field(default="", metadata=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class OwnCode(Event):
    """The program's own backend and passes, each as ``FILE:LINE``."""

    ev = "own"
    backend: str = ""
    passes: list[str] = field(default_factory=list)


ANY_FOLDER = "<the working directory>"
"""In the default of a setting: the folder in which torch was imported."""


@dataclass(frozen=True, kw_only=True)
class ConfigChanged(Event):
    """The compiler settings that the program changed."""

    ev = "config"
    changed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Module -> setting -> its value as text, where that is not the default in this process."""
    defaults: dict[str, dict[str, str]] = field(default_factory=dict)
    """The defaults of all settings in this process, which environment variables may have changed;
    only in the first of these events of a process.
    """


@dataclass(frozen=True, kw_only=True)
class KernelWritten(Event):
    """A Triton kernel that Inductor generated, written as a program."""

    ev = "kernel"
    name: str = ""
    key: str = ""
    files: list[str] = field(default_factory=list)
    problem: str = field(default="", metadata=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class Weights(Event):
    """Whether the weights are real or fake, and why."""

    ev = "weights"
    kind: str = ""
    why: str = field(default="", metadata=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class TargetBuilt(Event):
    """The target was built, and enters the compiler with ``entry``."""

    ev = "target"
    form: str = "dict"
    is_module: bool = False
    train: bool = False
    parameters: int = 0
    entry: str = ""
    compile: dict[str, str | bool] = field(default_factory=dict)
    """Arguments of torch.compile that the factory sets."""


@dataclass(frozen=True, kw_only=True)
class SourceFile(Event):
    """The file of a factory."""

    ev = "source"
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class TransformersModel(Event):
    """A model of transformers was built."""

    ev = "hf"
    kind: str = ""
    inputs: dict[str, list[int]] = field(default_factory=dict)
    """Shapes by the name of the parameter."""
    dtype: str = ""
    script: str = ""
    call: dict[str, Any] = field(default_factory=dict)
    """The arguments of the script's factory."""


@dataclass(frozen=True, kw_only=True)
class ModelSplit(Event):
    """The model was split over ranks, or could not be."""

    ev = "split"
    device: str = ""
    plan: dict[str, str] = field(default_factory=dict)
    is_split: bool | None = None
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class CallsTimed(Event):
    """Eager and compiled calls that were made in turns: for each block, the seconds of a call,
    without those in which the thread waited for a CPU, and its CPU instructions.
    """

    ev = "speed"
    eager: list[float] = field(default_factory=list)
    compiled: list[float] = field(default_factory=list)
    eager_instructions: list[float] = field(default_factory=list)
    compiled_instructions: list[float] = field(default_factory=list)
    no_instructions: str = ""
    """Why instructions were not counted, as a clause."""


@dataclass(frozen=True, kw_only=True)
class CallPart:
    """A part of a warm compiled call."""

    kind: str = ""
    """``guards``, ``kernel`` or ``operator``."""
    name: str = ""
    is_compiled: bool = False
    """It is inside of compiled code."""
    seconds: float = 0.0
    """Seconds in one pass over the calls."""
    count: float = 0.0
    """How many times a pass runs it."""
    ops: list[str] = field(default_factory=list)
    """The operators of ATen that it computes."""
    where: str = ""
    """The user's line of the last of them."""


@dataclass(frozen=True, kw_only=True)
class CallParts(Event):
    """Where the time of a warm compiled call goes."""

    ev = "call_parts"
    parts: list[CallPart] = field(default_factory=list)
    """The most expensive first."""
    eager_operators: dict[str, float] = field(default_factory=dict)
    """The seconds of each operator in one eager pass, by its name."""
    regions: float = 0.0
    """The number of compiled regions that a pass enters."""
    rest_s: float = 0.0
    """The seconds of a pass under the profiler that are in no part."""
    guards: dict[str, Any] = field(default_factory=dict, metadata=PRIVATE)
    """The line with the slowest guards: see ``agent/timing/guard_costs.py``."""
    not_measured: str = ""
    """Why nothing was measured, as a clause."""


@dataclass(frozen=True, kw_only=True)
class GpuSimulated(Event):
    """The process compiles for a simulated GPU."""

    ev = "simulated"
    gpu: dict[str, Any] = field(default_factory=dict)
    triton: str = ""
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RanksSimulated(Event):
    """This process is one rank of a simulated group."""

    ev = "simulated_ranks"
    difference: str = field(default="", metadata=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class SameRanks(Event):
    """These simulated ranks pass the guards of the graphs of rank 0, and are not traced."""

    ev = "same_ranks"
    ranks: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SimulationGapMet(Event):
    """A call that is not simulated was refused."""

    ev = "simulation_gap"
    symbol: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetRefused(Event):
    """The target cannot be used."""

    ev = "bad_target"
    message: str = field(default="", metadata=PRIVATE)
    has_run: bool | None = None
    """False if none of its code was run."""


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """Every call of a factory target returned."""

    ev = "finished"
