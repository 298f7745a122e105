"""Collect the environment of a target; every question has a deadline, and what has no answer says
why.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.records.observation import Missing
from reprokit.host.environment.agent_question import (
    LASTS_S,
    QUESTION_S,
    ask_agent,
    remembered_answer,
)
from reprokit.host.system import interrupts, private_names
from reprokit.host.system.child_question import NoAnswer, ask_child, end_children


@dataclass(frozen=True)
class MachineFacts:
    """What is known of the machine and the interpreter."""

    facts: dict[str, Any]
    collect_env: str
    """The text of ``python -m torch.utils.collect_env``; empty when it gave none."""
    missing: tuple[Missing, ...]


NO_PYTHON = "the command started no Python that imported torch"


def collect_facts(
    python: str | None, folder: Path | None = None, why_none: str = NO_PYTHON, is_fresh: bool = True
) -> MachineFacts:
    """Ask all questions side by side; ``python`` is the target's interpreter, None (and why) where
    there is none.

    Unless ``is_fresh``, what an interpreter said of itself a moment ago need not be asked again.
    """
    questions: dict[str, Callable[[], Any]] = {
        "os": _system,
        "cpu": _cpu,
        "memory": _memory,
        "compiler": _compiler,
        "gpus": _gpus,
        "rocm": _rocm,
        "variables": private_names.allowed_variables,
    }
    if python:
        age_s = 0.0 if is_fresh else LASTS_S
        questions["inventory"] = lambda: json.loads(
            remembered_answer("inventory", python, lambda: _inventory(python, folder), age_s)
        )
        questions["collect_env"] = lambda: remembered_answer(
            "collect_env", python, lambda: _collect_env(python), age_s
        )
    facts: dict[str, Any] = {}
    missing: list[Missing] = []
    with ThreadPoolExecutor(max_workers=4) as pool:
        jobs = {name: pool.submit(question) for name, question in questions.items()}
        for name, job in jobs.items():
            try:
                with interrupts.allowed():
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
    missing += [
        Missing(f"environment: {n}", w) for n, w in sorted(inventory.get("problems", {}).items())
    ]
    return MachineFacts(facts, facts.pop("collect_env", ""), tuple(missing))


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
    facts: dict[str, Any] = {
        "logical": psutil.cpu_count(),
        "physical": psutil.cpu_count(logical=False),
    }
    with contextlib.suppress(AttributeError):
        facts["usable"] = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "flags") and name.strip() not in facts:
                facts[name.strip()] = value.strip()
    flags = str(facts.pop("flags", "")).split()
    facts["vector_flags"] = [
        f
        for f in flags
        if f.startswith(("avx", "amx", "sse4", "fma", "f16c", "sve", "neon", "asimd"))
    ]
    return facts


def _memory() -> dict[str, Any]:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    facts: dict[str, Any] = {"total_bytes": memory.total, "swap_bytes": swap.total}
    with contextlib.suppress(OSError), open("/sys/fs/cgroup/memory.max") as file:
        facts["cgroup_limit"] = file.read().strip()
    with contextlib.suppress(OSError):
        # asked for its size, not written to
        facts["shm_bytes"] = shutil.disk_usage("/dev/shm").total  # noqa: S108
    return facts


def _compiler() -> dict[str, str]:
    name = os.environ.get("CXX") or "g++"
    found = {name: ask_child([*name.split(), "--version"], 10).splitlines()[0]}
    for other in ("clang++", "nvcc"):
        if shutil.which(other):
            with contextlib.suppress(NoAnswer, IndexError):
                found[other] = (
                    ask_child([other, "--version"], 10)
                    .strip()
                    .splitlines()[-1 if other == "nvcc" else 0]
                )
    return found


def _gpus() -> Any:
    place = str(Path(__file__).resolve().parents[3])
    return json.loads(
        ask_child(
            [sys.executable, "-m", "reprokit.host.watch.nvml"], QUESTION_S, {"PYTHONPATH": place}
        )
    )


def _rocm() -> str:
    try:
        return Path("/opt/rocm/.info/version").read_text().strip()
    except OSError as problem:
        raise NoAnswer("ROCm was not found") from problem


def _inventory(python: str, folder: Path | None) -> str:
    return json.dumps(ask_agent(python, ["env"], QUESTION_S, folder))


def _collect_env(python: str) -> str:
    return ask_child([python, "-m", "torch.utils.collect_env"], QUESTION_S)
