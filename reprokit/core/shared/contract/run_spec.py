"""What the agent runs: a factory target, written by the host as ``spec.json`` or as a part of a
probe's request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A factory target and how to run it."""

    kind: str
    """``file``, ``module``, ``zoo`` or ``hf``."""
    place: str = ""
    """The file, the module, or the folder of a configuration."""
    name: str = ""
    """The factory, the model of the zoo, or the model type."""
    cwd: str = ""
    knobs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the factory; one that is None was not given."""
    compile: dict[str, Any] = field(default_factory=dict)
    """Arguments of torch.compile."""
    train: bool = False
    device: str | None = None
    weights: str = "auto"
    """``auto``, ``real`` or ``fake``."""
    gpu: dict[str, Any] | None = None
    """The GPU that is simulated; None where none is."""
    tensor_parallel: int = 0
    """Over how many ranks the model is split; 0 for none."""
    every_rank: bool = False
    """This process is one rank after the other, in a fake process group."""
    is_compiled: bool = True
    """False runs the target without torch.compile."""
    measure_s: float = 0.0
    """For how many seconds eager and compiled calls are timed in turns."""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the factory that were given."""
        return {name: value for name, value in self.knobs.items() if value is not None}
