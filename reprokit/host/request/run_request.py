"""What to run and how: all that the user may choose, as one record."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.shared.contract.run_spec import RunSpec
from reprokit.core.shared.contract.serialize import from_json, hints, to_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.request.target import Target

DEADLINE_S = 600.0
"""Deadline of a factory."""


@dataclass(frozen=True)
class Request:
    """What to run and how; everything that the user may choose."""

    target: Target
    python: str = sys.executable
    """Interpreter for a factory target; a command names its own."""
    deadline_s: float | None = DEADLINE_S
    """Wall-clock seconds after which the run is ended; None: never. A command has none unless the
    user asks for one.
    """
    stall_s: float = 60.0
    """No progress for this long is a stall: see ``core/records/stalls.py``."""
    on_stall: str = ""
    """What a stall does: ``report``, ``end``, or empty for the default."""
    grace_s: float = 10.0
    """Seconds between asking a program to end and killing it."""
    line_repeats: int = 20_000
    """A user line that Dynamo traces more often than this, in one frame, is no more progress."""
    knobs: dict[str, Any] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)
    train: bool = False
    device: str | None = None
    weights: str = "auto"
    gpu: dict[str, Any] | None = None
    """Compile for this GPU, which need not be there: the properties of
    ``core.shared.simulation.Gpu``.
    """
    beside: dict[str, Any] | None = None
    """The GPU that is here: compile for a simulated one like it too, and say where they
    disagree.
    """
    tensor_parallel: int = 0
    """Split the model over so many ranks: real ones where its weights are real and no GPU is
    simulated.
    """
    kernels: str = "changed"
    """Which of the Triton kernels that were generated for it are compiled: ``none``, ``changed`` or
    ``all``.
    """
    logs: tuple[str, ...] = ()
    has_trace: bool = True
    compile_it: bool = True
    """False runs the same target without torch.compile."""
    escalate: bool | None = None
    """Ask what the first run left open in shorter ones; None: of a factory, but not of a
    command.
    """
    measure_s: float = 0.0
    """Time eager and compiled calls in turns for so long, after the calls themselves."""
    most_breaks: int | None = None
    """More graph breaks than this are a failure; None allows any number."""
    compares: bool = True
    """Compare its results with eager's when nothing else fails. A command is run once more for each
    side.
    """
    rungs: str = "few"
    """Which rungs of the ablation ladder are asked after a failure: ``none``, ``few``, or ``all``
    after any run.
    """
    minimizes: bool = True
    """Look for the smallest program that shows the same failure."""
    budget_s: float = 300.0
    """Wall-clock seconds for that."""
    proofs: int = 3
    """Fresh processes that prove it."""
    cwd: Path | None = None
    """Where the target runs; None: where reprokit does."""
    look_every_s: float = 0.0
    """Take the stacks that often while it runs, whether or not it advances; 0: only when it is
    quiet.
    """
    variables: dict[str, str] = field(default_factory=dict)
    """More environment variables for the target, for the questions of a second run."""

    @property
    def quiet_limit_s(self) -> float:
        """A run that was quiet for longer than this at its deadline did not advance."""
        return (
            min(self.stall_s, self.deadline_s / 4) if self.deadline_s is not None else self.stall_s
        )


OF_ONE_RUN = frozenset({"cwd", "variables"})
"""Fields that belong to one run of a request, such as a question's; every other field is in
``run.json``.
"""


def request_to_json(request: Request) -> dict[str, Any]:
    """The request as JSON values, by the names of its fields."""
    names = (f.name for f in dataclasses.fields(request) if f.name not in OF_ONE_RUN)
    return {name: to_json(getattr(request, name)) for name in names}


def request_from_json(told: dict[str, Any]) -> Request:
    """Make the request again that :func:`describe` gave; a field that is missing or damaged has its
    default.
    """
    kept: dict[str, Any] = {}
    for name, kind in hints(Request).items():
        if name in told and name not in OF_ONE_RUN:
            with contextlib.suppress(ValueError, RecursionError):
                kept[name] = from_json(kind, told[name])
    if "target" not in kept:
        raise BadInput("run.json does not say what was run")
    return Request(**kept)


def has_simulated_ranks(request: Request) -> bool:
    """One process stands for all ranks, in a fake process group: nothing of the model is
    executed.
    """
    return bool(request.tensor_parallel) and (request.gpu is not None or request.weights == "fake")


def factory_spec(request: Request) -> RunSpec:
    """A factory target as the agent runs it."""
    target = request.target
    return RunSpec(
        kind=target.kind,
        place=target.place,
        name=target.name,
        cwd=os.getcwd(),
        knobs=request.knobs,
        compile=request.compile,
        train=request.train,
        device=request.device,
        weights=request.weights,
        gpu=request.gpu,
        tensor_parallel=request.tensor_parallel,
        is_compiled=request.compile_it,
        measure_s=request.measure_s,
    )
