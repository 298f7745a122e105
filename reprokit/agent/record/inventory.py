"""What only the target's own interpreter can tell about its environment; each answer may fail
alone.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ...core.shared import cuts


def collect_inventory() -> dict[str, Any]:
    """Give ``{"facts": {...}, "problems": {name: why}}``; imports torch, runs ptxas, touches no
    device.
    """
    facts: dict[str, Any] = {}
    problems: dict[str, str] = {}
    questions: dict[str, Callable[[], Any]] = {
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
    }
    for name, question in questions.items():
        try:
            facts[name] = question()
        except Exception as problem:  # an environment that is broken is why we ask
            problems[name] = cuts.cut_head(f"{type(problem).__name__}: {problem}", 500)
    return {"facts": facts, "problems": problems}


def _packages() -> dict[str, str]:
    found = {
        d.metadata["Name"]: d.version
        for d in importlib.metadata.distributions()
        if d.metadata["Name"]
    }
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _torch() -> dict[str, Any]:
    import torch

    facts = {
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


def _triton() -> dict[str, Any]:
    import triton

    return {"version": triton.__version__, "file": triton.__file__}


def _configs() -> dict[str, dict[str, str]]:
    from . import compile_settings

    return compile_settings.as_text(compile_settings.changed_configs())


def _log_names() -> list[str]:
    import torch._logging._internal as internal

    registry = internal.log_registry
    return sorted({*registry.log_alias_to_log_qnames, *registry.artifact_names})


def _symmetric_memory() -> dict[str, str]:
    """Where this version keeps symmetric memory; the place has moved more than once."""
    import importlib.util

    found = {}
    for name in ("torch.distributed._symmetric_memory", "torch.distributed.symmetric_memory"):
        found[name] = "module" if importlib.util.find_spec(name) else "absent"
    import torch

    ops = ("one_shot_all_reduce", "two_shot_all_reduce_", "multimem_all_reduce_")
    there = [name for name in ops if hasattr(torch.ops.symm_mem, name)]
    found["torch.ops.symm_mem"] = ", ".join(there) or "none of its operators is registered"
    return found


def _ptxas() -> dict[str, str]:
    """Which ptxas Triton would call, in its own order, and its version."""
    import triton

    folder = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
    places = {
        "TRITON_PTXAS_PATH": os.environ.get("TRITON_PTXAS_PATH"),
        "TRITON_PTXAS_BLACKWELL_PATH": os.environ.get("TRITON_PTXAS_BLACKWELL_PATH"),
        "bundled": os.path.join(folder, "ptxas"),
        "bundled blackwell": os.path.join(folder, "ptxas-blackwell"),
    }
    found = {}
    for name, path in places.items():
        if path and os.path.exists(path):
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=10, check=False
            )
            said = done.stdout.strip() or done.stderr.strip()
            release = [line.strip() for line in done.stdout.splitlines() if "release" in line]
            found[name] = f"{path}: {release[-1] if release else cuts.cut_head(said, 200)}"
    if not found:
        raise FileNotFoundError("Triton has no ptxas here")
    return found
