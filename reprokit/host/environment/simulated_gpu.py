"""Find the properties of the GPU to simulate: by name, from a file, or from the GPU of this
machine.
"""

from __future__ import annotations

import dataclasses
import glob
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.records import bounded_json
from reprokit.core.shared import simulation
from reprokit.core.shared.errors import BadInput
from reprokit.host.environment.agent_queries import query_agent
from reprokit.host.system.child_commands import CommandFailed

QUERY_TIMEOUT_S = 120.0


def list_gpus(python: str) -> list[dict[str, Any]]:
    """Return the GPUs that the torch of ``python`` sees, in the format of a file for ``--gpu``."""
    try:
        gpus = query_agent(python, ["gpus"], QUERY_TIMEOUT_S)
    except CommandFailed as problem:
        raise BadInput(f"cannot query the GPUs that {python} sees: {problem}") from problem
    if not gpus:
        raise BadInput(
            "torch sees no GPU here; record one on a machine that has it, or name a GPU that"
            " reprokit knows: --gpu h100"
        )
    return [dataclasses.asdict(simulation.read_gpu(gpu, "torch")) for gpu in gpus]


def gpu_for_comparison(
    python: str, gpu: dict[str, Any] | None, device: str | None
) -> dict[str, Any]:
    """Return the GPU of this machine, which ``--compare-simulated`` simulates."""
    if gpu is not None:
        raise BadInput(
            "--compare-simulated runs on the GPU of this machine, so --gpu cannot be used with it"
        )
    if device is not None and not device.startswith("cuda"):
        raise BadInput(
            f"--compare-simulated compares with a GPU, so --device {device} cannot be used with it"
        )
    return list_gpus(python)[0]


def has_memory_for(needed_bytes: int) -> bool:
    """Return whether this machine may have enough memory; always True if it has a GPU, whose driver
    decides.
    """
    return bool(glob.glob("/dev/nvidia[0-9]*")) or needed_bytes <= psutil.virtual_memory().available


def parse_gpu_option(words: str) -> dict[str, Any]:
    """Return the properties of the GPU that ``--gpu`` names, as JSON values. Raises BadInput."""
    if not words.endswith(".json") and not Path(words).is_file():
        return dataclasses.asdict(simulation.gpu_named(words))
    try:
        properties = bounded_json.parse_json(Path(words).read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadInput(f"--gpu {words}: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadInput(
            f"--gpu {words} is not JSON ({problem}); reprokit env --gpu writes such a file"
        ) from problem
    if not isinstance(properties, dict):
        raise BadInput(f"--gpu {words} is not a JSON object; reprokit env --gpu writes such a file")
    return dataclasses.asdict(simulation.read_gpu(properties, f"--gpu {words}"))
