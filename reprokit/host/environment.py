"""Collect the environment of a target; every question has a deadline, and what has no answer says why."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from ..core import cuts
from ..core.records import BadInput, Missing
from . import files, guarded, interrupts, private, tree, warmth
from .launch import agent_folder, python_path, simulation

QUESTION_S = 60.0
"""Deadline of each question that starts a child; collect_env alone took 6.8 s on a loaded machine."""
LASTS_S = 600.0
"""So long a capture believes what an earlier one was told; two imports of torch are most of what asking costs."""
MATTERING = (
    "PATH", "PYTHON", "LD_", "CUDA", "NVIDIA", "HIP", "ROC", "TORCH", "PYTORCH", "TRITON", "INDUCTOR", "OMP", "MKL", "HOME",
    "VIRTUAL_ENV", "CONDA",
)  # fmt: skip
"""Beginnings of the names of variables that an answer may depend on."""
NOT_MATTERING = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})


@dataclass(frozen=True)
class Environment:
    """What is known of the machine and the interpreter."""

    facts: dict[str, Any]
    collect_env: str
    """The text of ``python -m torch.utils.collect_env``; empty when it gave none."""
    missing: tuple[Missing, ...]


class NoAnswer(Exception):
    """A question that could not be answered; the message says why."""


NO_PYTHON = "the command started no Python that imported torch"


def collect(
    python: str | None, folder: Path | None = None, why_none: str = NO_PYTHON, is_fresh: bool = True
) -> Environment:
    """Ask all questions side by side; ``python`` is the target's interpreter, None (and why) where there is none.

    Unless ``is_fresh``, what an interpreter said of itself a moment ago need not be asked again.
    """
    questions: dict[str, Callable[[], Any]] = {
        "os": _system,
        "cpu": _cpu,
        "memory": _memory,
        "compiler": _compiler,
        "gpus": _gpus,
        "rocm": _rocm,
        "variables": private.allowed_variables,
    }
    if python:
        age_s = 0.0 if is_fresh else LASTS_S
        questions["inventory"] = lambda: json.loads(
            remembered("inventory", python, lambda: _inventory(python, folder), age_s)
        )
        questions["collect_env"] = lambda: remembered("collect_env", python, lambda: _collect_env(python), age_s)
    facts: dict[str, Any] = {}
    missing: list[Missing] = []
    with ThreadPoolExecutor(max_workers=4) as pool:
        jobs = {name: pool.submit(question) for name, question in questions.items()}
        for name, job in jobs.items():
            try:
                with interrupts.heard():
                    facts[name] = job.result()
            except KeyboardInterrupt:  # the pool would wait for the children that we start
                end_children()
                raise
            except Exception as problem:  # a broken environment is what we are asked about
                missing.append(Missing(f"environment: {name}", str(problem) or repr(problem)))
    if not python:
        missing.append(Missing("environment: Python and packages", why_none))
    inventory = facts.pop("inventory", {})
    facts.update(inventory.get("facts", {}))
    missing += [Missing(f"environment: {n}", w) for n, w in sorted(inventory.get("problems", {}).items())]
    return Environment(facts, facts.pop("collect_env", ""), tuple(missing))


def _system() -> dict[str, Any]:
    release = {}
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distribution": release.get("PRETTY_NAME"),
    }


def _cpu() -> dict[str, Any]:
    facts: dict[str, Any] = {"logical": psutil.cpu_count(), "physical": psutil.cpu_count(logical=False)}
    with contextlib.suppress(AttributeError):
        facts["usable"] = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "flags") and name.strip() not in facts:
                facts[name.strip()] = value.strip()
    flags = str(facts.pop("flags", "")).split()
    facts["vector_flags"] = [
        f for f in flags if f.startswith(("avx", "amx", "sse4", "fma", "f16c", "sve", "neon", "asimd"))
    ]
    return facts


def _memory() -> dict[str, Any]:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    facts: dict[str, Any] = {"total_bytes": memory.total, "swap_bytes": swap.total}
    with contextlib.suppress(OSError), open("/sys/fs/cgroup/memory.max") as file:
        facts["cgroup_limit"] = file.read().strip()
    with contextlib.suppress(OSError):
        facts["shm_bytes"] = shutil.disk_usage("/dev/shm").total  # noqa: S108 - asked for its size, not written to
    return facts


def _compiler() -> dict[str, str]:
    name = os.environ.get("CXX") or "g++"
    found = {name: ask_child([*name.split(), "--version"], 10).splitlines()[0]}
    for other in ("clang++", "nvcc"):
        if shutil.which(other):
            with contextlib.suppress(NoAnswer, IndexError):
                found[other] = ask_child([other, "--version"], 10).strip().splitlines()[-1 if other == "nvcc" else 0]
    return found


def _gpus() -> Any:
    place = str(Path(__file__).resolve().parents[2])
    return json.loads(ask_child([sys.executable, "-m", "reprokit.host.gpus"], QUESTION_S, {"PYTHONPATH": place}))


def _rocm() -> str:
    try:
        return Path("/opt/rocm/.info/version").read_text().strip()
    except OSError as problem:
        raise NoAnswer("ROCm was not found") from problem


def remembered(name: str, python: str, ask: Callable[[], str], age_s: float) -> str:
    """What ``ask`` gives, or gave no longer than ``age_s`` ago in the same surroundings."""
    asked = sorted(key for key in os.environ if key.startswith(MATTERING) and key not in NOT_MATTERING)
    memory = f"ulimit -v {resource.getrlimit(resource.RLIMIT_AS)}"  # with little memory, torch gives no answer
    state = warmth.state_of(python, more=[memory, *(f"{key}={os.environ[key]}" for key in asked)])
    path = Path(platformdirs.user_cache_dir("reprokit")) / "environment" / f"{state}-{name}.txt"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if 0 <= time.time() - path.stat().st_mtime < age_s:
            return path.read_text(encoding="utf-8")
    text = ask()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_whole(path, text)
    return text


def _inventory(python: str, folder: Path | None) -> str:
    return json.dumps(ask_agent(python, ["env"], QUESTION_S, folder))


def ask_agent(
    python: str, words: list[str], timeout_s: float, folder: Path | None = None, more: dict[str, str] | None = None
) -> Any:  # fmt: skip
    """The JSON value that the agent answers ``words`` with, in the interpreter ``python``."""
    with agent_folder(folder) as agent:
        environ = {**(more or {}), "PYTHONPATH": python_path(agent)}
        text = ask_child([python, "-m", "_reprokit.agent", *words], timeout_s, environ, (agent,))
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError) as problem:
        raise NoAnswer(f"{python} gave no answer to {words[0]}; it printed {text[-300:]!r}") from problem


def check_simulation(python: str, gpu: Mapping[str, Any]) -> None:
    """Raise BadInput where the torch of ``python`` cannot be simulated on; where it gives no answer, the run says why."""

    def ask() -> str:
        with tempfile.TemporaryDirectory(prefix="reprokit-") as folder:
            os.mkdir(os.path.join(folder, "journal"))
            more = {**simulation(gpu), "REPROKIT_RUN_DIR": folder}
            if why := ask_agent(python, ["simulates"], QUESTION_S, more=more):
                raise BadInput(str(why))
        return "{}"

    with contextlib.suppress(NoAnswer):
        remembered("simulates", python, ask, LASTS_S)


def _collect_env(python: str) -> str:
    return ask_child([python, "-m", "torch.utils.collect_env"], QUESTION_S)


_running: set[subprocess.Popen[bytes]] = set()


def ask_child(
    command: list[str], timeout_s: float, more: dict[str, str] | None = None, folders: tuple[Path, ...] = ()
) -> str:
    """The stdout of ``command``; a deadline ends its process group. If reprokit is killed, ``folders`` are deleted."""
    environ = {k: v for k, v in os.environ.items() if k not in ("REPROKIT_RUN_DIR", "TORCH_TRACE", "TORCH_LOGS")}
    run_id = uuid.uuid4().hex
    guardian = guarded.watch(run_id, folders)
    try:
        return _answer_of(command, timeout_s, {**environ, **(more or {}), tree.RUN_ID: run_id})
    finally:
        if guardian is not None:
            guardian.dismiss()


def _answer_of(command: list[str], timeout_s: float, environ: dict[str, str]) -> str:
    try:
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as problem:
        raise NoAnswer(f"{command[0]}: {problem.strerror}") from problem
    _running.add(child)
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as problem:
        raise NoAnswer(f"{' '.join(command[:4])} gave nothing in {timeout_s:.0f} s") from problem
    finally:
        _end(child)
        _running.discard(child)
    if child.returncode:
        said = err.decode("utf-8", "replace").strip().splitlines()
        why = cuts.head(said[-1], 300) if said else f"it ended with status {child.returncode} and said nothing"
        raise NoAnswer(f"{' '.join(command[1:4])}: {why}")
    return out.decode("utf-8", "replace")


def end_children() -> None:
    """End every child that another thread waits for."""
    for child in tuple(_running):
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
