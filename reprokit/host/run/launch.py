"""Prepare the start of a target: its command line, its environment, and a copy of the agent."""

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
from reprokit.host.system.child_commands import PACKAGE, agent_command


@contextlib.contextmanager
def copied_agent(run_path: Path | None, parts: frozenset[str]) -> Iterator[Path]:
    """Yield a folder with a copy of the agent and ``core.shared``, for PYTHONPATH; delete it
    afterwards.

    The folder is in ``run_path``, or in the temporary folder if that path contains a colon, which
    PYTHONPATH cannot express.
    """
    with contextlib.ExitStack() as stack:
        if run_path is None or os.pathsep in str(run_path):
            folder = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="reprokit-", ignore_cleanup_errors=True)
                )
            )
        else:
            folder = run_path / run_names.AGENT_FOLDER
            stack.callback(deletion.delete_path, folder, inside=run_path)
        package = folder / "_reprokit"
        deletion.delete_path(package, inside=folder)  # a killed reprokit may have left it
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        for path in agent_files(PACKAGE, parts):
            copy = package / path.relative_to(PACKAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)  # with its time, so that the .pyc files stay valid
        (package / "agent" / "sitecustomize.py").rename(folder / "sitecustomize.py")
        yield folder


SERVER, OVERRIDES, RESULTS, PLAIN = "server", "overrides", "results", "plain"
HUNT = "hunt"
CODEGEN, SIMULATION = "codegen", "simulation"
CACHES, CALLS, LIVE, INSTALLED = "caches", "calls", "live", "installed"
FACTORY, TRANSFORMERS, ZOO = "factory", "transformers", "zoo"
MEMORY, TIMING, MEASURED = "memory", "timing", "measured"
PARTS: dict[str, tuple[str, ...]] = {
    SERVER: (
        "agent/serve",
        "agent/torch_hooks/stop_after_phase.py",
        "core/shared/contract/probe_messages.py",
    ),
    OVERRIDES: (
        "agent/experiments",
        "agent/torch_hooks/ablation_hooks.py",
        "core/shared/sanitizer_flags.py",
    ),
    PLAIN: ("core/shared/without_compile.py",),
    RESULTS: (
        "agent/results",
        "core/shared/contract/result_events.py",
        "core/shared/result_comparison.py",
    ),
    CODEGEN: (
        "agent/record/generated_kernels.py",
        "agent/torch_hooks/codegen_only.py",
        "core/shared/source/triton_programs.py",
    ),
    SIMULATION: (
        "agent/simulate",
        "core/shared/simulation.py",
    ),
    CACHES: (
        "agent/target/cache_artifacts.py",
        "agent/torch_hooks/cache_hooks.py",
        "core/shared/contract/cache_events.py",
    ),
    CALLS: (
        "agent/target/call_holders.py",
        "agent/target/call_samples.py",
        "core/shared/contract/growth_events.py",
    ),
    LIVE: ("agent/record/live_graphs.py", "agent/record/live_tasks.py"),
    INSTALLED: ("agent/failures", "agent/prepare.py"),
    FACTORY: ("agent/run_target.py", "agent/target", "core/shared/target_options.py"),
    MEMORY: ("agent/memory_meter.py", "core/shared/contract/memory_record.py"),
    TRANSFORMERS: ("agent/target/hf",),
    HUNT: ("agent/hunt", "core/shared/hunted_programs.py"),
    ZOO: ("agent/models", "core/shared/zoo.py"),
    TIMING: ("agent/timing",),
    MEASURED: ("agent/measure_program.py", "core/shared/contract/measured_kinds.py"),
}
"""Folders and files of the agent that only some runs need. No run needs those that the program
itself imports from the installed reprokit.
"""


def agent_parts_of_request(request: Request) -> frozenset[str]:
    """Return the parts of the agent that a run needs."""
    parts = set()
    if request.target.kind != "command":
        parts |= {FACTORY, CODEGEN}  # fake weights need CODEGEN
    if request.target.kind in ("hf", "zoo"):
        parts.add(TRANSFORMERS if request.target.kind == "hf" else ZOO)
    if request.samples_calls:
        parts |= {CALLS, PLAIN}
    if request.compares_memory:
        parts.add(MEMORY)
    if request.gpu is not None:
        parts |= {CODEGEN, SIMULATION}
    if request.measure_s:
        parts.add(TIMING)
    return agent_parts_of_environment({**os.environ, **request.variables}) | parts


def agent_parts_of_environment(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the parts of the agent that environment variables require."""
    parts: set[str] = set()
    if environ.get(run_names.OVERRIDES_VARIABLE):
        parts |= {OVERRIDES, RESULTS, PLAIN}
    if environ.get(run_names.RESULTS_VARIABLE):
        parts |= {RESULTS, PLAIN}
    if environ.get(run_names.GPU_VARIABLE):
        parts |= {CODEGEN, SIMULATION}
    if environ.get(run_names.CACHES_VARIABLE):
        parts.add(CACHES)
    if environ.get(run_names.MEASURES_VARIABLE):
        parts |= {MEASURED, MEMORY, CALLS, TIMING, FACTORY}
    return frozenset(parts)


def agent_files(source: Path, parts: frozenset[str]) -> list[Path]:
    """Return the files of reprokit that the agent needs with these parts, and their ``.pyc``
    files.
    """
    left_out = {name for part in PARTS.keys() - parts for name in PARTS[part]}
    chosen = [source / "core" / "__init__.py"]
    for package in ("core/shared", "agent"):
        for path in sorted((source / package).rglob("*.*")):
            module = path.relative_to(source)
            if path.suffix == ".pyc":
                module = module.parent.parent / f"{path.name.partition('.')[0]}.py"
            names = {str(module), *map(str, module.parents)}
            if path.suffix in (".py", ".pyc", ".cpp", ".txt") and not names & left_out:
                chosen.append(path)
    return chosen


def environment_without_reprokit() -> dict[str, str]:
    """Return the environment of this process without the variables of reprokit."""
    return {k: v for k, v in os.environ.items() if not k.startswith(run_names.OUR_VARIABLES)}


def agent_python_path(agent: Path) -> str:
    """Return PYTHONPATH with the folder of the agent before the folders of the user."""
    return os.pathsep.join([str(agent), *(p for p in (os.environ.get("PYTHONPATH"),) if p)])


def target_command(request: Request, run_path: Path, agent: Path) -> list[str]:
    """Return the command line: that of the user, or that of the agent with the description of a
    factory target.
    """
    if request.target.kind == "command":
        return list(request.target.command)
    spec = dataclasses.replace(factory_spec(request), every_rank=has_simulated_ranks(request))
    files.write_json(run_path / run_names.SPEC_FILE, to_json(spec))
    spec_file = str(run_path / run_names.SPEC_FILE)
    command = agent_command(request.python, agent, "_reprokit.agent", "run", spec_file)
    if request.tensor_parallel and not has_simulated_ranks(request):
        words = ("--standalone", "--nproc-per-node", str(request.tensor_parallel), *command[1:])
        return agent_command(request.python, agent, "torch.distributed.run", *words)
    return command


def target_environment(
    request: Request, run_path: Path, agent: Path, run_id: str
) -> tuple[dict[str, str], list[Missing]]:
    """Return the environment of the target: that of the user, the agent on PYTHONPATH, and the run
    directory.

    Also return what will be missing.
    """
    missing: list[Missing] = []
    environ = dict(os.environ)
    environ["PYTHONPATH"] = agent_python_path(agent)
    environ[run_names.RUN_DIR_VARIABLE] = str(run_path)
    environ[run_names.WATCHDOG_VARIABLE] = str(os.getpid())
    environ[run_names.RUN_ID_VARIABLE] = run_id
    environ[run_names.LOGS_VARIABLE] = ",".join(request.logs)
    environ.setdefault("PYTHONUNBUFFERED", "1")  # a crash would lose buffered output
    # A filled cache would skip the failing compile, and a killed compile would damage the cache.
    cache = compiler_cache.plain_path(run_path / run_names.CACHE_FOLDER)
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    if not request.has_trace:
        missing.append(Missing("TORCH_TRACE", "disabled by --no-trace"))
    elif environ.get("TORCH_TRACE"):
        missing.append(
            Missing(
                "TORCH_TRACE",
                f"the target's environment already sends it to {environ['TORCH_TRACE']}",
            )
        )
    else:
        environ["TORCH_TRACE"] = str(run_path / run_names.TRACE_FOLDER)
        environ[run_names.TRACE_LIMIT_VARIABLE] = str(request.trace_bytes)
    if not request.compile_it:
        environ.pop("TORCH_TRACE", None)
    environ.update(simulation_variables(request.gpu))
    if has_simulated_ranks(request):
        environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(request.tensor_parallel))
    environ.update(request.variables)
    if environ.get("TORCH_TRACE") == "":
        del environ["TORCH_TRACE"]  # torch raises an error for an empty value
    return environ, missing


def simulation_variables(gpu: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the environment variable that simulates a GPU in a process and its children."""
    if gpu is None:
        return {}
    return {
        run_names.GPU_VARIABLE: json.dumps(
            {"gpu": dict(gpu), "cache": str(compiler_cache.guard_folder())}
        )
    }
