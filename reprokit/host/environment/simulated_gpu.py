"""The GPU that is to be simulated: one that is known, one that was recorded, or one that is here to
be recorded.
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
from reprokit.host.environment.agent_question import ask_agent
from reprokit.host.system.child_question import NoAnswer

ANSWER_S = 120.0


def gpu_here(python: str) -> list[dict[str, Any]]:
    """The GPUs that torch in ``python`` sees, in the form that ``--gpu`` takes from a file."""
    try:
        found = ask_agent(python, ["gpus"], ANSWER_S)
    except NoAnswer as problem:
        raise BadInput(f"{python} did not say which GPUs it sees: {problem}") from problem
    if not found:
        raise BadInput(
            "torch sees no GPU here; record one where it stands, or name one that reprokit knows:"
            " --gpu h100"
        )
    return [dataclasses.asdict(simulation.read_gpu(one, "torch")) for one in found]


def gpu_to_compare(python: str, gpu: dict[str, Any] | None, device: str | None) -> dict[str, Any]:
    """The GPU that is here, to be simulated beside the real run."""
    if gpu is not None:
        raise BadInput(
            "--compare-simulated runs on the GPU that is here, so --gpu cannot be used with it"
        )
    if device is not None and not device.startswith("cuda"):
        raise BadInput(
            f"--compare-simulated compares with a GPU, so --device {device} cannot be used with it"
        )
    return gpu_here(python)[0]


def can_hold(needed_bytes: int) -> bool:
    """This machine may hold so much: a GPU decides for itself when it is asked."""
    return bool(glob.glob("/dev/nvidia[0-9]*")) or needed_bytes <= psutil.virtual_memory().available


def find_gpu(words: str) -> dict[str, Any]:
    """The properties of the GPU as JSON values."""
    if not words.endswith(".json") and not Path(words).is_file():
        return dataclasses.asdict(simulation.gpu_named(words))
    try:
        told = bounded_json.parse_json(Path(words).read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadInput(f"--gpu {words}: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadInput(
            f"--gpu {words} is not JSON ({problem}); reprokit env --gpu writes such a file"
        ) from problem
    if not isinstance(told, dict):
        raise BadInput(
            f"--gpu {words} holds no properties of a GPU; reprokit env --gpu writes such a file"
        )
    return dataclasses.asdict(simulation.read_gpu(told, f"--gpu {words}"))
