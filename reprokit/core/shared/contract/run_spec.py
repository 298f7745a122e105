"""The factory target that the agent runs: the host writes it as ``spec.json`` or as a part of a
probe request.
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
    """Arguments of the factory; None means that the user did not set it."""
    compile: dict[str, Any] = field(default_factory=dict)
    """Arguments of torch.compile."""
    entry: str = ""
    """How the compiler is entered; empty for the factory's own entry, or torch.compile."""
    train: bool = False
    device: str | None = None
    weights: str = "auto"
    """``auto``, ``real`` or ``fake``."""
    gpu: dict[str, Any] | None = None
    """The simulated GPU; None if no GPU is simulated."""
    tensor_parallel: int = 0
    """The number of ranks over which the model is split; 0 if it is not split."""
    every_rank: bool = False
    """This process runs as each rank in turn, in a fake process group."""
    is_compiled: bool = True
    """False runs the target without torch.compile."""
    save_artifacts: str = ""
    """The file for the artifacts of ``torch.compiler.save_cache_artifacts``; empty: none."""
    load_artifacts: str = ""
    """The file of artifacts that are loaded before the first call; empty: none."""
    calls: int = 0
    """The number of calls during which the process counts what it holds; 0: the calls of the
    factory, and nothing is counted.
    """
    measure_s: float = 0.0
    """The seconds for which eager and compiled calls are timed in turns."""
    measures_parts: bool = False
    """Also measure which parts of a compiled call take the time."""
    measures_memory: bool = False
    """The calls are made once more to measure their memory."""

    @property
    def factory_arguments(self) -> dict[str, Any]:
        """The arguments of the factory that the user set."""
        return {name: value for name, value in self.knobs.items() if value is not None}
