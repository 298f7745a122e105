"""What a target is started with: its command line, its environment, and the folder that holds the
agent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reprokit.core.records.observation import Missing
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.request.run_request import Request, factory_spec, has_simulated_ranks
from reprokit.host.system import compiler_cache, deletion, files


@contextlib.contextmanager
def agent_folder(place: Path | None, parts: frozenset[str]) -> Iterator[Path]:
    """A folder for the target's path alone, with the agent and what it shares with the host; gone
    afterwards.

    It lies below ``place``, except where that path holds a colon: PYTHONPATH cannot say such a
    path.
    """
    with contextlib.ExitStack() as stack:
        if place is None or os.pathsep in str(place):
            folder = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="reprokit-", ignore_cleanup_errors=True)
                )
            )
        else:
            folder = place / run_names.AGENT_FOLDER
            stack.callback(deletion.delete, folder, inside=place)
        package = folder / "_reprokit"
        deletion.delete(package, inside=folder)  # left by a reprokit that was killed
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        source = Path(__file__).resolve().parents[2]
        for path in copied_files(source, parts):
            copy = package / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)  # with its time: compiled files beside it stay valid
        (package / "agent" / "sitecustomize.py").rename(folder / "sitecustomize.py")
        yield folder


SERVER, OVERRIDES, RESULTS = "server", "overrides", "results"
CODEGEN, SIMULATION = "codegen", "simulation"
FACTORY, TRANSFORMERS, ZOO = "factory", "transformers", "zoo"
PARTS: dict[str, tuple[str, ...]] = {
    SERVER: (
        "agent/serve",
        "core/shared/contract/probe_messages.py",
        "core/shared/without_compile.py",
    ),
    OVERRIDES: ("agent/experiments", "core/shared/operators.py"),
    RESULTS: ("agent/results", "core/shared/result_comparison.py"),
    CODEGEN: (
        "agent/record/generated_kernels.py",
        "agent/torch_hooks/codegen_only.py",
        "core/shared/source/triton_programs.py",
    ),
    SIMULATION: (
        "agent/simulate",
        "agent/record/kernel_launches.py",
        "core/shared/simulation.py",
    ),
    FACTORY: ("agent/run_target.py", "agent/target", "core/shared/target_options.py"),
    TRANSFORMERS: ("agent/target/hf",),
    ZOO: ("agent/models", "core/shared/zoo.py"),
}
"""What of the agent is needed only for some runs, as folders and files."""


def parts_of(request: Request) -> frozenset[str]:
    """The parts of the agent that a run needs."""
    found = set()
    if request.target.kind != "command":  # its weights may be fake
        found |= {FACTORY, CODEGEN}
    if request.target.kind in ("hf", "zoo"):
        found.add(TRANSFORMERS if request.target.kind == "hf" else ZOO)
    if request.gpu is not None:
        found |= {CODEGEN, SIMULATION}
    return parts_in({**os.environ, **request.variables}) | found


def parts_in(environ: Mapping[str, str]) -> frozenset[str]:
    """The parts of the agent that environment variables ask for."""
    found: set[str] = set()
    if environ.get(run_names.OVERRIDES_VARIABLE):
        found |= {OVERRIDES, RESULTS}
    if environ.get(run_names.RESULTS_VARIABLE):
        found.add(RESULTS)
    if environ.get(run_names.GPU_VARIABLE):
        found |= {CODEGEN, SIMULATION}
    return frozenset(found)


def copied_files(source: Path, parts: frozenset[str]) -> list[Path]:
    """The files of reprokit that the agent needs with these parts, and their compiled forms."""
    left_out = {one for part in PARTS.keys() - parts for one in PARTS[part]}
    found = [source / "core" / "__init__.py"]
    for package in ("core/shared", "agent"):
        for path in sorted((source / package).rglob("*.*")):
            place = path.relative_to(source)
            if path.suffix == ".pyc":
                place = place.parent.parent / f"{path.name.partition('.')[0]}.py"
            names = {str(place), *map(str, place.parents)}
            if path.suffix in (".py", ".pyc", ".cpp") and not names & left_out:
                found.append(path)
    return found


def users_environment() -> dict[str, str]:
    """Our environment without what reprokit tells its own processes."""
    return {k: v for k, v in os.environ.items() if not k.startswith(run_names.OUR_VARIABLES)}


def python_path(agent: Path) -> str:
    """PYTHONPATH with the agent's folder before the user's own."""
    return os.pathsep.join([str(agent), *(p for p in (os.environ.get("PYTHONPATH"),) if p)])


def target_command(request: Request, run_path: Path) -> list[str]:
    """The command line: the user's own, or the agent with a spec of the factory target."""
    if request.target.kind == "command":
        return list(request.target.command)
    spec = dataclasses.replace(factory_spec(request), every_rank=has_simulated_ranks(request))
    files.write_json(run_path / run_names.SPEC_FILE, to_json(spec))
    agent = ["-m", "_reprokit.agent", "run", str(run_path / run_names.SPEC_FILE)]
    if request.tensor_parallel and not has_simulated_ranks(request):
        count = str(request.tensor_parallel)
        return [
            request.python,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            count,
            *agent,
        ]
    return [request.python, *agent]


def target_environment(
    request: Request, run_path: Path, agent: Path, run_id: str
) -> tuple[dict[str, str], list[Missing]]:
    """The target's environment: the user's own, plus our folder on PYTHONPATH and where to
    write.
    """
    missing: list[Missing] = []
    environ = dict(os.environ)
    environ["PYTHONPATH"] = python_path(agent)
    environ[run_names.RUN_DIR_VARIABLE] = str(run_path)
    environ[run_names.WATCHDOG_VARIABLE] = str(os.getpid())
    environ[run_names.RUN_ID_VARIABLE] = run_id
    environ[run_names.LOGS_VARIABLE] = ",".join(request.logs)
    environ.setdefault("PYTHONUNBUFFERED", "1")  # output that a crash would lose is evidence
    # A warm cache hides the compile that fails, and a killed compile poisons the cache it wrote to.
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(run_path / run_names.CACHE_FOLDER))
    if not request.has_trace:
        missing.append(Missing("TORCH_TRACE", "left out by --no-trace"))
    elif environ.get("TORCH_TRACE"):
        missing.append(
            Missing(
                "TORCH_TRACE",
                f"the target's environment already sends it to {environ['TORCH_TRACE']}",
            )
        )
    else:
        environ["TORCH_TRACE"] = str(run_path / run_names.TRACE_FOLDER)
    if not request.compile_it:
        environ.pop("TORCH_TRACE", None)
    environ.update(simulation_variables(request.gpu))
    if has_simulated_ranks(request):
        environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(request.tensor_parallel))
    environ.update(request.variables)
    if environ.get("TORCH_TRACE") == "":
        del environ["TORCH_TRACE"]  # an empty one is an error to torch
    return environ, missing


def simulation_variables(gpu: Mapping[str, Any] | None) -> dict[str, str]:
    """The environment variable that has a process, and those it starts, compile for a GPU that is
    not there.
    """
    if gpu is None:
        return {}
    return {
        run_names.GPU_VARIABLE: json.dumps(
            {"gpu": dict(gpu), "cache": str(compiler_cache.guard_folder())}
        )
    }
