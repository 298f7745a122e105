"""What a target is started with: its command line, its environment, and the folder that holds the agent."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.decode import from_json, hints
from ..core.records import BadInput, Missing, to_json
from . import deletion, files, tree, warmth
from .target import Target

OURS = (
    "REPROKIT_RUN_", "REPROKIT_WATCHDOG_", "REPROKIT_LOGS", "REPROKIT_RESULTS", "REPROKIT_OVERRIDES",
)  # fmt: skip
"""How the variables begin that reach the target's environment from here; others of that prefix are somebody else's."""


DEADLINE_S = 600.0
"""Deadline of a factory."""


@dataclass(frozen=True)
class Request:
    """What to run and how; everything that the user may choose."""

    target: Target
    python: str = sys.executable
    """Interpreter for a factory target; a command names its own."""
    deadline_s: float | None = DEADLINE_S
    """Wall-clock seconds after which the run is ended; None: never. A command has none unless the user asks for one."""
    stall_s: float = 60.0
    """No progress for this long is a stall: see ``core/stalls.py``."""
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
    """Compile for this GPU, which need not be there: the properties of ``core.devices.Gpu``."""
    beside: dict[str, Any] | None = None
    """The GPU that is here: compile for a simulated one like it too, and say where they disagree."""
    tensor_parallel: int = 0
    """Split the model over so many ranks: real ones where its weights are real and no GPU is simulated."""
    kernels: str = "changed"
    """Which of the Triton kernels that were generated for it are compiled: ``none``, ``changed`` or ``all``."""
    logs: tuple[str, ...] = ()
    has_trace: bool = True
    compile_it: bool = True
    """False runs the same target without torch.compile."""
    escalate: bool | None = None
    """Ask what the first run left open in shorter ones; None: of a factory, but not of a command."""
    measure_s: float = 0.0
    """Time eager and compiled calls in turns for so long, after the calls themselves."""
    most_breaks: int | None = None
    """More graph breaks than this are a failure; None allows any number."""
    compares: bool = True
    """Compare its results with eager's when nothing else fails. A command is run once more for each side."""
    rungs: str = "few"
    """Which rungs of the ablation ladder are asked after a failure: ``none``, ``few``, or ``all`` after any run."""
    minimizes: bool = True
    """Look for the smallest program that shows the same failure."""
    budget_s: float = 300.0
    """Wall-clock seconds for that."""
    proofs: int = 3
    """Fresh processes that prove it."""
    cwd: Path | None = None
    """Where the target runs; None: where reprokit does."""
    look_every_s: float = 0.0
    """Take the stacks that often while it runs, whether or not it advances; 0: only when it is quiet."""
    variables: dict[str, str] = field(default_factory=dict)
    """More environment variables for the target, for the questions of a second run."""

    @property
    def quiet_limit_s(self) -> float:
        """A run that was quiet for longer than this at its deadline did not advance."""
        return min(self.stall_s, self.deadline_s / 4) if self.deadline_s is not None else self.stall_s


OF_ONE_RUN = frozenset({"cwd", "variables"})
"""Fields that belong to one run of a request, such as a question's; every other field is in ``run.json``."""


def describe(request: Request) -> dict[str, Any]:
    """The request as JSON values, by the names of its fields."""
    names = (f.name for f in dataclasses.fields(request) if f.name not in OF_ONE_RUN)
    return {name: to_json(getattr(request, name)) for name in names}


def restore(told: dict[str, Any]) -> Request:
    """Make the request again that :func:`describe` gave; a field that is missing or damaged has its default."""
    kept: dict[str, Any] = {}
    for name, kind in hints(Request).items():
        if name in told and name not in OF_ONE_RUN:
            with contextlib.suppress(ValueError, RecursionError):
                kept[name] = from_json(kind, told[name])
    if "target" not in kept:
        raise BadInput("run.json does not say what was run")
    return Request(**kept)


@contextlib.contextmanager
def agent_folder(place: Path | None = None) -> Iterator[Path]:
    """A folder for the target's path alone, holding core and agent and nothing else of reprokit; gone afterwards.

    It lies below ``place``, except where that path holds a colon: PYTHONPATH cannot say such a path.
    """
    with contextlib.ExitStack() as stack:
        if place is None or os.pathsep in str(place):
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="reprokit-", ignore_cleanup_errors=True))
            )
        else:
            folder = place / "agent"
            stack.callback(deletion.delete, folder, inside=place)
        package = folder / "_reprokit"
        deletion.delete(package, inside=folder)  # left by a reprokit that was killed
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        source = Path(__file__).resolve().parent.parent
        for ring in ("core", "agent"):
            for path in sorted((source / ring).rglob("*.*")):
                if path.suffix in (".py", ".json", ".pyc", ".cpp"):
                    copy = package / path.relative_to(source)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, copy)  # with its time: compiled files beside it stay valid
        (package / "agent" / "sitecustomize.py").rename(folder / "sitecustomize.py")
        yield folder


def users_environment() -> dict[str, str]:
    """Our environment without what reprokit tells its own processes."""
    return {k: v for k, v in os.environ.items() if not k.startswith(OURS)}


def python_path(agent: Path) -> str:
    """PYTHONPATH with the agent's folder before the user's own."""
    return os.pathsep.join([str(agent), *(p for p in (os.environ.get("PYTHONPATH"),) if p)])


def command(request: Request, run_path: Path) -> list[str]:
    """The command line: the user's own, or the agent with a spec of the factory target."""
    if request.target.kind == "command":
        return list(request.target.command)
    files.write_json(run_path / "spec.json", {**spec(request), "every_rank": has_simulated_ranks(request)})
    agent = ["-m", "_reprokit.agent", "run", str(run_path / "spec.json")]
    if request.tensor_parallel and not has_simulated_ranks(request):
        count = str(request.tensor_parallel)
        return [request.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, *agent]
    return [request.python, *agent]


def has_simulated_ranks(request: Request) -> bool:
    """One process stands for all ranks, in a fake process group: nothing of the model is executed."""
    return bool(request.tensor_parallel) and (request.gpu is not None or request.weights == "fake")


def spec(request: Request) -> dict[str, Any]:
    """A factory target as the agent runs it."""
    target = request.target
    named = {"kind": target.kind, "place": target.place, "name": target.name}
    return {**describe(request), **named, "cwd": os.getcwd(), "every_rank": False}


def environment(request: Request, run_path: Path, agent: Path, run_id: str) -> tuple[dict[str, str], list[Missing]]:
    """The target's environment: the user's own, plus our folder on PYTHONPATH and where to write."""
    missing: list[Missing] = []
    environ = dict(os.environ)
    environ["PYTHONPATH"] = python_path(agent)
    environ["REPROKIT_RUN_DIR"] = str(run_path)
    environ["REPROKIT_WATCHDOG_PID"] = str(os.getpid())
    environ[tree.RUN_ID] = run_id
    environ["REPROKIT_LOGS"] = ",".join(request.logs)
    environ.setdefault("PYTHONUNBUFFERED", "1")  # output that a crash would lose is evidence
    # A warm cache hides the compile that fails, and a killed compile poisons the cache it wrote to.
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(run_path / "cache"))
    if not request.has_trace:
        missing.append(Missing("TORCH_TRACE", "left out by --no-trace"))
    elif environ.get("TORCH_TRACE"):
        missing.append(Missing("TORCH_TRACE", f"the target's environment already sends it to {environ['TORCH_TRACE']}"))
    else:
        environ["TORCH_TRACE"] = str(run_path / "trace")
    if not request.compile_it:
        environ.pop("TORCH_TRACE", None)
    environ.update(simulation(request.gpu))
    if has_simulated_ranks(request):
        environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(request.tensor_parallel))
    environ.update(request.variables)
    if environ.get("TORCH_TRACE") == "":
        del environ["TORCH_TRACE"]  # an empty one is an error to torch
    return environ, missing


def simulation(gpu: Mapping[str, Any] | None) -> dict[str, str]:
    """The environment variable that has a process, and those it starts, compile for a GPU that is not there."""
    if gpu is None:
        return {}
    return {"REPROKIT_RUN_GPU": json.dumps({"gpu": dict(gpu), "cache": str(warmth.guards())})}
