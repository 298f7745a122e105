"""Describe the environment of the target's interpreter: packages, torch, Triton, ptxas."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ..core.shared import cuts

COLLECT_ENV_TIMEOUT_S = 30.0
"""Less than the host waits for the whole inventory; collect_env took 6.8 s on a loaded machine."""


def collect_inventory() -> dict[str, dict[str, Any]]:
    """Return ``{"facts": {...}, "problems": {name: why}}``.

    It imports torch and runs ptxas. Only collect_env, in a child, uses a device. A fact that cannot
    be collected is a problem, and the other facts are still collected. Without Triton, there are no
    facts about it.
    """
    facts: dict[str, object] = {}
    problems: dict[str, str] = {}
    collectors: dict[str, Callable[[], object]] = {
        "python": lambda: {
            "version": sys.version,
            "executable": sys.executable,
            "implementation": platform.python_implementation(),
        },
        "packages": _packages,
        "torch": _torch,
        "triton": _triton,
        "configs": _configs,
        "log_names": _log_names,
        "symmetric_memory": _symmetric_memory,
        "ptxas": _ptxas,
        "collect_env": _collect_env,
    }
    if importlib.util.find_spec("triton") is None:  # as with most CPU builds of torch
        del collectors["triton"], collectors["ptxas"]
    for name, collect in collectors.items():
        try:
            facts[name] = collect()
        except Exception as problem:  # the environment may be broken
            problems[name] = cuts.cut_head(f"{type(problem).__name__}: {problem}", 500)
    return {"facts": facts, "problems": problems}


def _packages() -> dict[str, str]:
    versions = {
        d.metadata["Name"]: d.version
        for d in importlib.metadata.distributions()
        if d.metadata["Name"]
    }
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


def _torch() -> dict[str, object]:
    import torch

    facts: dict[str, object] = {
        "version": torch.__version__,
        "git_version": getattr(torch.version, "git_version", None),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "xpu": getattr(torch.version, "xpu", None),
        "debug": getattr(torch.version, "debug", None),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cxx11_abi": getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", None),
    }
    for name in ("torchvision", "torchaudio"):
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = None
    return facts


def _triton() -> dict[str, str]:
    import triton

    return {"version": triton.__version__, "file": triton.__file__}


def _configs() -> dict[str, dict[str, str]]:
    from .record import compile_settings

    return compile_settings.config_texts(compile_settings.changed_configs())


def _log_names() -> list[str]:
    import torch._logging._internal as internal

    registry = internal.log_registry
    return sorted({*registry.log_alias_to_log_qnames, *registry.artifact_names})


def _collect_env() -> str:
    """Return the output of ``python -m torch.utils.collect_env``, without another import of torch.

    It runs in a forked child, because it asks the driver of a GPU, which may not answer.

    Raises:
        TimeoutError: it did not end in time.
    """
    from torch.utils import collect_env

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            text = str(collect_env.get_pretty_env_info())
            with open(writing, "w", encoding="utf-8") as file:
                file.write(text)
        finally:
            os._exit(0)
    os.close(writing)
    parts, ends = [], time.monotonic() + COLLECT_ENV_TIMEOUT_S
    try:
        while select.select([reading], [], [], max(ends - time.monotonic(), 0.0))[0]:
            if not (part := os.read(reading, 1 << 16)):
                break
            parts.append(part)
        else:
            raise TimeoutError(f"it did not end within {COLLECT_ENV_TIMEOUT_S:g} s")
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # with the tools that it runs
        os.waitpid(pid, 0)
    if not parts:
        raise RuntimeError("it printed nothing")
    return b"".join(parts).decode("utf-8", "replace")


def _symmetric_memory() -> dict[str, str]:
    """Return where this torch has symmetric memory: its module differs between versions."""
    facts = {}
    for name in ("torch.distributed._symmetric_memory", "torch.distributed.symmetric_memory"):
        facts[name] = "module" if importlib.util.find_spec(name) else "absent"
    import torch

    ops = ("one_shot_all_reduce", "two_shot_all_reduce_", "multimem_all_reduce_")
    registered = [name for name in ops if hasattr(torch.ops.symm_mem, name)]
    facts["torch.ops.symm_mem"] = ", ".join(registered) or "none of its operators is registered"
    return facts


def _ptxas() -> dict[str, str]:
    """Return the path and version of each ptxas that Triton can call, in Triton's order."""
    import triton

    folder = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
    paths = {
        "TRITON_PTXAS_PATH": os.environ.get("TRITON_PTXAS_PATH"),
        "TRITON_PTXAS_BLACKWELL_PATH": os.environ.get("TRITON_PTXAS_BLACKWELL_PATH"),
        "bundled": os.path.join(folder, "ptxas"),
        "bundled blackwell": os.path.join(folder, "ptxas-blackwell"),
    }
    facts = {}
    for name, path in paths.items():
        if path and os.path.exists(path):
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=10, check=False
            )
            output = done.stdout.strip() or done.stderr.strip()
            release = [line.strip() for line in done.stdout.splitlines() if "release" in line]
            facts[name] = f"{path}: {release[-1] if release else cuts.cut_head(output, 200)}"
    if not facts:
        raise FileNotFoundError("Triton has no ptxas here")
    return facts
