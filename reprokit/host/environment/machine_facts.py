"""Collect facts about the environment of a target. Each query has a timeout, and a failed query is
reported with its reason.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.records.observation import Missing
from reprokit.host.environment.agent_queries import (
    CACHE_LIFETIME_S,
    QUERY_TIMEOUT_S,
    cached_answer,
    query_agent,
    query_torch_defaults,
)
from reprokit.host.system import host_log, interrupts, private_names
from reprokit.host.system.child_commands import CommandFailed, end_children, run_for_output
from reprokit.host.watch import gpu_vendors


@dataclass(frozen=True)
class MachineFacts:
    """Facts about the machine and the interpreter."""

    facts: dict[str, Any]
    collect_env: str
    """The output of ``python -m torch.utils.collect_env``; empty if it failed."""
    missing: tuple[Missing, ...]
    torch_defaults: dict[str, dict[str, str]] = field(default_factory=dict)
    """The defaults of torch's compiler settings; empty if they are not known."""


NO_PYTHON = "the command started no Python that imported torch"


def collect_facts(
    python: str | None, folder: Path | None = None, why_none: str = NO_PYTHON, is_fresh: bool = True
) -> MachineFacts:
    """Run all queries at the same time.

    ``python`` is the target's interpreter; if it is None, ``why_none`` is the reason. Unless
    ``is_fresh``, cached answers of the interpreter are used.
    """
    queries = dict(MACHINE_PROBES)
    if python:
        max_age_s = 0.0 if is_fresh else CACHE_LIFETIME_S
        queries["inventory"] = lambda: json.loads(
            cached_answer("inventory", python, lambda: _inventory(python, folder), max_age_s)
        )
        queries["torch defaults"] = lambda: _torch_defaults(python)
    facts: dict[str, Any] = {}
    missing: list[Missing] = []
    with ThreadPoolExecutor(max_workers=4) as pool:
        jobs = {name: pool.submit(query) for name, query in queries.items()}
        for name, job in jobs.items():
            try:
                with interrupts.allowed():
                    facts[name] = job.result()
            except KeyboardInterrupt:  # otherwise the pool waits for the children
                end_children()
                raise
            except Exception as problem:  # a broken environment is expected
                missing.append(Missing(f"environment: {name}", str(problem) or repr(problem)))
    if not python:
        missing.append(Missing("environment: Python and packages", why_none))
    inventory, torch_defaults = facts.pop("inventory", {}), facts.pop("torch defaults", {})
    facts.update(inventory.get("facts", {}))
    missing += [
        Missing(f"environment: {n}", w) for n, w in sorted(inventory.get("problems", {}).items())
    ]
    return MachineFacts(facts, facts.pop("collect_env", ""), tuple(missing), torch_defaults)


def _torch_defaults(python: str) -> dict[str, dict[str, str]]:
    with host_log.suppress(CommandFailed):  # the inventory says what is wrong with the torch
        return query_torch_defaults(python)
    return {}


def _system() -> dict[str, str | None]:
    release = {}
    with host_log.suppress(OSError):
        release = platform.freedesktop_os_release()
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distribution": release.get("PRETTY_NAME"),
    }


def _cpu() -> dict[str, object]:
    facts: dict[str, object] = {
        "logical": psutil.cpu_count(),
        "physical": psutil.cpu_count(logical=False),
    }
    with host_log.suppress(AttributeError):
        facts["usable"] = len(os.sched_getaffinity(0))
    with host_log.suppress(OSError), open("/proc/cpuinfo") as file:
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


def _memory() -> dict[str, int | str]:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    facts: dict[str, int | str] = {"total_bytes": memory.total, "swap_bytes": swap.total}
    with host_log.suppress(OSError), open("/sys/fs/cgroup/memory.max") as file:
        facts["cgroup_limit"] = file.read().strip()
    with host_log.suppress(OSError):
        # only its size is read
        facts["shm_bytes"] = shutil.disk_usage("/dev/shm").total  # noqa: S108
    return facts


def _compiler() -> dict[str, str]:
    name = os.environ.get("CXX") or "g++"
    versions = {name: run_for_output([*name.split(), "--version"], 10).splitlines()[0]}
    for program in ("clang++", "nvcc"):
        if shutil.which(program):
            with host_log.suppress(CommandFailed, IndexError):
                lines = run_for_output([program, "--version"], 10).strip().splitlines()
                versions[program] = lines[-1 if program == "nvcc" else 0]
    return versions


def _rocm() -> str | None:
    """Return the version of ROCm; None where it is not installed, as on most machines."""
    try:
        return Path("/opt/rocm/.info/version").read_text().strip()
    except FileNotFoundError:
        return None


def _inventory(python: str, folder: Path | None) -> str:
    return json.dumps(query_agent(python, ["env"], QUERY_TIMEOUT_S, folder))


MACHINE_PROBES: dict[str, Callable[[], Any]] = {
    "os": _system,
    "cpu": _cpu,
    "memory": _memory,
    "compiler": _compiler,
    "gpus": lambda: gpu_vendors.query_gpus(QUERY_TIMEOUT_S),
    "rocm": _rocm,
    "variables": private_names.allowed_variables,
}
"""The environment probes: key in ``environment.json`` -> function that returns JSON values.

All run at the same time. One that raises is reported in ``missing`` with its reason.
"""
