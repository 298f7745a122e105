"""The user's request as one record: what to run, and how."""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.shared.contract.run_spec import RunSpec
from reprokit.core.shared.contract.serialize import field_types, from_json, to_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.request.target import Target
from reprokit.host.system import host_log

DEADLINE_S = 600.0
"""The default deadline of a factory target."""

TRACE_BYTES = 200_000_000
"""The default of ``--trace-limit``: about 5,000 compiles with Inductor, or 300,000 without."""


@dataclass(frozen=True)
class Request:
    """What to run, and how. The names of the fields are keys of ``run.json``."""

    target: Target
    python: str = sys.executable
    """The interpreter of a factory target; a command names its own."""
    deadline_s: float | None = DEADLINE_S
    """Wall-clock seconds after which the run is ended; None: never. A command has no deadline
    unless the user sets one.
    """
    stall_s: float = 60.0
    """No progress for this long is a stall: see ``core/records/stalls.py``."""
    on_stall: str = ""
    """The reaction to a stall: ``report``, ``end``, or empty for the default."""
    grace_s: float = 10.0
    """Seconds between the signal that ends a program and SIGKILL."""
    line_repeats: int = 20_000
    """If Dynamo traces a user line more often than this in one frame, the line no longer counts as
    progress.
    """
    knobs: dict[str, Any] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)
    entry: str = ""
    """How the compiler is entered: one of ``entry_programs.ENTRIES``; empty for the factory's own
    entry, or torch.compile.
    """
    train: bool = False
    device: str | None = None
    weights: str = "auto"
    gpu: dict[str, Any] | None = None
    """Simulate this GPU: the fields of ``core.shared.simulation.Gpu``. None: no simulation."""
    beside: dict[str, Any] | None = None
    """The GPU of this machine: also compile for a simulation of it, and report the differences."""
    tensor_parallel: int = 0
    """The number of ranks that the model is split over; 0: not split. The ranks are real processes
    if the weights are real and no GPU is simulated.
    """
    kernels: str = "changed"
    """Which of the generated Triton kernels are compiled for a simulated GPU: ``none``, ``changed``
    or ``all``.
    """
    logs: tuple[str, ...] = ()
    has_trace: bool = True
    trace_bytes: int = TRACE_BYTES
    """The size of ``TORCH_TRACE``, compressed, at which its oldest compiles are dropped."""
    compile_it: bool = True
    """False: run the same target without torch.compile."""
    escalate: bool | None = None
    """Start shorter runs for questions that the first run leaves open. None: for a factory, but not
    for a command.
    """
    measure_s: float = 0.0
    """Seconds in which eager and compiled calls are timed in turns, after the first calls."""
    measures_parts: bool = False
    """Also measure which parts of a compiled call take the time."""
    compares_speed: bool = False
    """Time warm calls, compiled and in eager, if nothing else fails."""
    most_breaks: int | None = None
    """A larger number of graph breaks is a failure; None allows any number."""
    fail_on: tuple[str, ...] = ()
    """What is a failure although PyTorch regards it as working: words of ``verdict_kinds``."""
    compares: bool = True
    """Compare the results with those of eager mode if nothing else fails. A command runs once more
    in each mode.
    """
    calls: int = 0
    """The number of calls in which memory that grows is searched for; 0: it is not."""
    samples_calls: bool = False
    """This run makes these calls, and samples what its process holds."""
    compares_memory: bool = False
    """Compare the peak of the memory with that of eager, if nothing else fails."""
    checks_caches: bool = False
    """Run the target again with the caches that its first run filled."""
    cache_change: dict[str, str] = field(default_factory=dict)
    """The settings of the stage ``changed``: environment variables, and settings of torch by their
    full names.
    """
    cache_python: str = ""
    """The interpreter of the stage ``changed``; empty: that of the other stages."""
    ablation_steps: str = "few"
    """Which ablation steps run after a failure: ``none``, ``few``, or ``all``, which run after a
    success too.
    """
    runs_unisolated: bool = False
    """Run changed copies of a command also where the machine cannot isolate them."""
    minimizes: bool = True
    """Search for the smallest program with the same failure."""
    budget_s: float = 300.0
    """Wall-clock seconds for this search."""
    proofs: int = 3
    """The number of runs that prove this program (see ``host.minimize.proofs.proof.ProofRuns``)."""
    cores: int = 0
    """The number of processes that run at once after the first run; 0: as many as usable cores."""
    cwd: Path | None = None
    """The working directory of the target; None: that of reprokit."""
    look_every_s: float = 0.0
    """Seconds between dumps of the stacks while the target advances; 0: dump only while there is no
    progress.
    """
    stage: str = ""
    """The stage of a comparison of caches in which this run is the reader."""
    has_writer: bool = False
    """The command starts the writer of the cache itself, as its child."""
    save_artifacts: str = ""
    load_artifacts: str = ""
    """The file of artifacts that a factory target saves at its end, or loads before its calls."""
    attached_pid: int = 0
    """The process that was observed while it ran; 0 for a target that reprokit starts."""
    quiet_before_s: float = 0.0
    """For this long that process had not advanced before, as the user or ``watch`` states."""
    python_refused: str = ""
    """Why the interpreter of an attached process must not be run; empty if it may be."""
    variables: dict[str, str] = field(default_factory=dict)
    """Additional environment variables of the target, for a follow-up run."""

    @property
    def quiet_limit_s(self) -> float:
        """Seconds without progress at the deadline after which a run counts as hanging."""
        return (
            min(self.stall_s, self.deadline_s / 4) if self.deadline_s is not None else self.stall_s
        )


UNSAVED_FIELDS = frozenset(
    {
        "cwd",
        "variables",
        "stage",
        "has_writer",
        "samples_calls",
        "save_artifacts",
        "load_artifacts",
    }
)
"""Fields that belong to one run of a request; all other fields are in ``run.json``."""


def request_to_json(request: Request) -> dict[str, Any]:
    """Return the request as JSON values, by the names of its fields."""
    names = (f.name for f in dataclasses.fields(request) if f.name not in UNSAVED_FIELDS)
    return {name: to_json(getattr(request, name)) for name in names}


def request_from_json(document: dict[str, Any]) -> Request:
    """Return the request that :func:`request_to_json` wrote. A missing or damaged field has its
    default.

    Raises BadInput without a target.
    """
    fields: dict[str, Any] = {}
    for name, kind in field_types(Request).items():
        if name in document and name not in UNSAVED_FIELDS:
            with host_log.suppress(ValueError, RecursionError):
                fields[name] = from_json(kind, document[name])
    if "target" not in fields:
        raise BadInput("run.json has no valid target")
    return Request(**fields)


def has_simulated_ranks(request: Request) -> bool:
    """Return whether one process simulates all ranks, in a fake process group that executes
    nothing.
    """
    return bool(request.tensor_parallel) and (request.gpu is not None or request.weights == "fake")


def factory_spec(request: Request) -> RunSpec:
    """Return the description of a factory target for the agent."""
    target = request.target
    return RunSpec(
        kind=target.kind,
        place=target.place,
        name=target.name,
        cwd=os.getcwd(),
        knobs=request.knobs,
        compile=request.compile,
        entry=request.entry,
        train=request.train,
        device=request.device,
        weights=request.weights,
        gpu=request.gpu,
        tensor_parallel=request.tensor_parallel,
        is_compiled=request.compile_it,
        save_artifacts=request.save_artifacts,
        load_artifacts=request.load_artifacts,
        calls=request.calls if request.samples_calls else 0,
        measure_s=request.measure_s,
        measures_parts=request.measures_parts,
        measures_memory=request.compares_memory,
    )
