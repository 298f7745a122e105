"""Ask NVIDIA's management library, in a process of its own: a wedged GPU can block the call for ever.

``python -m reprokit.host.gpus`` writes ``{"driver", "cuda_of_driver", "gpus": [...]}`` as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml


def ask() -> dict[str, Any]:
    """Driver, its CUDA version, and one dict a GPU; raises pynvml.NVMLError where there is no driver."""
    pynvml.nvmlInit()
    version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda_of_driver": f"{version // 1000}.{version % 1000 // 10}",
        "gpus": [_gpu(number) for number in range(pynvml.nvmlDeviceGetCount())],
    }


def _gpu(number: int) -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: pynvml.nvmlDeviceGetName(handle),
        "capability": lambda: ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "memory_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        "vbios": lambda: pynvml.nvmlDeviceGetVbiosVersion(handle),
        "mig": lambda: pynvml.nvmlDeviceGetMigMode(handle)[0],
    }
    facts: dict[str, Any] = {}
    for name, question in questions.items():
        with contextlib.suppress(pynvml.NVMLError):  # not every GPU answers every question
            facts[name] = question()
    return facts


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(ask()))
    except pynvml.NVMLError as problem:
        sys.stderr.write(f"no NVIDIA GPU can be asked: {problem}\n")
        raise SystemExit(1) from None
