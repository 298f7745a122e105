"""The GPU that is to be simulated, from what the user named: one that is known, or a file of recorded properties."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..core import devices
from ..core.records import BadInput


def find(words: str) -> dict[str, Any]:
    """The properties of the GPU as JSON values."""
    if not words.endswith(".json") and not Path(words).is_file():
        return dataclasses.asdict(devices.named(words))
    try:
        told = json.loads(Path(words).read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadInput(f"--gpu {words}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"--gpu {words} is not JSON ({problem}); reprokit env --gpu writes such a file") from problem
    if not isinstance(told, dict):
        raise BadInput(f"--gpu {words} holds no properties of a GPU; reprokit env --gpu writes such a file")
    return dataclasses.asdict(devices.read(told, f"--gpu {words}"))
