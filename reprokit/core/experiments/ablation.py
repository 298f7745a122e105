"""The ablation: which part of the compiler is the first with which it fails, and which switch
avoids it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract.serialize import from_json, to_json


@dataclass(frozen=True)
class CompileVariant:
    """One way to compile."""

    name: str
    group: str
    """``own``; ``backends``, in the order in which each does more than the one before; ``modes``;
    ``switches``.
    """
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What is changed: ``compile`` (arguments of ``torch.compile``), ``configs`` (settings by their
    full names).
    """
    part: str = ""
    """Of a backend: the part of the compiler that it adds."""


def _backend(name: str, part: str) -> CompileVariant:
    return CompileVariant(f'backend="{name}"', "backends", {"compile": {"backend": name}}, part)


def _mode(name: str) -> CompileVariant:
    return CompileVariant(
        f'mode="{name}"', "modes", {"compile": {"mode": name, "backend": "inductor"}}
    )


def _switch(name: str, compile: Mapping[str, Any] | None = None, **configs: Any) -> CompileVariant:
    full = {f"torch.{key.replace('__', '.')}": value for key, value in configs.items()}
    return CompileVariant(name, "switches", {"compile": dict(compile or {}), "configs": full})


OWN_BACKEND = CompileVariant("the program's own backend", "own")
OWN_PASSES = CompileVariant("without the program's own passes", "own", {"without_passes": True})
EAGER = CompileVariant("no torch.compile", "backends", part="eager")
VARIANTS = (
    EAGER,
    _backend("eager", "dynamo"),
    _backend("aot_eager", "aot"),
    _backend("aot_eager_decomp_partition", "decompositions"),
    _backend("inductor", "inductor"),
    *map(_mode, ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")),
    _switch("dynamic=False", {"dynamic": False}),
    _switch("dynamic=True", {"dynamic": True}),
    _switch("fullgraph=True", {"fullgraph": True}),
    _switch(
        "no caches",
        _inductor__config__fx_graph_cache=False,
        _functorch__config__enable_autograd_cache=False,
    ),
    _switch("one compile thread", _inductor__config__compile_threads=1),
    _switch(
        "no fusion", _inductor__config__max_fusion_size=1, _inductor__config__epilogue_fusion=False
    ),
    _switch("no pattern matcher", _inductor__config__pattern_matcher=False),
    _switch("no vectorised C++", _inductor__config__cpp__simdlen=0),
    _switch("one OpenMP thread in C++", _inductor__config__cpp__threads=1),
    _switch("rounding as eager does", _inductor__config__emulate_precision_casts=True),
    _switch("no layout optimization", _inductor__config__layout_optimization=False),
)
"""All ablation steps but those of the program's own code; a capture asks those of ``backends`` and
``dynamic=False``.
"""

LABELS = {
    "dynamo": "module: dynamo",
    "aot": "module: pt2-dispatcher",
    "decompositions": "module: pt2-dispatcher",
    "inductor": "module: inductor",
}
"""The label that the maintainers' triage gives a failure that begins in this part."""


def of_own(seen: Observation) -> tuple[CompileVariant, ...]:
    """The ablation steps for what of the compile is the program's own; they are asked first."""
    return (OWN_BACKEND,) * bool(seen.own_backend) + (OWN_PASSES,) * bool(seen.own_passes)


@dataclass(frozen=True)
class AblationStep:
    """What one ablation step came to."""

    name: str
    group: str
    answer: str
    """``same``, ``other``, ``passes`` or ``unresolved``: one of ``oracle.ANSWERS``."""
    verdict: str
    title: str
    """The signature's."""
    seconds: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Ablation:
    """What the ablation came to."""

    steps: tuple[AblationStep, ...] = ()
    blamed: str = ""
    """What is known of the single pass, lowering or operator that it takes; empty where nothing
    is.
    """
    responsible: str = "torch"
    """The verdict's responsible party: only a failure of torch's gets a label."""

    def answer(self, name: str) -> str:
        """The answer of an ablation step; empty when it was not asked."""
        return next((s.answer for s in self.steps if s.name == name), "")

    @property
    def first(self) -> CompileVariant | None:
        """The first backend with which the same failure shows."""
        backends = [r for r in VARIANTS if r.group == "backends"]
        return next((r for r in backends if self.answer(r.name) == same_failure.SAME), None)

    @property
    def needs(self) -> str:
        """What it needs: the program's own ``passes`` or ``backend``, nothing but ``torch``, or
        empty where no step says so.
        """
        without = self.answer(OWN_PASSES.name)
        if without == same_failure.PASSES:
            return "passes"
        if self.first is not None:
            return "torch" if without in ("", same_failure.SAME) else ""
        is_alone = same_failure.PASSES in {s.answer for s in self.steps if s.group == "backends"}
        return "backend" if is_alone and self.answer(OWN_BACKEND.name) == same_failure.SAME else ""

    @property
    def own(self) -> str:
        """What of the program's own it needs; empty where that is nothing, or not known."""
        return self.needs if self.needs != "torch" else ""

    @property
    def label(self) -> str:
        """The maintainers' label; empty when torch is not responsible, no step shows the failure,
        or eager itself does.
        """
        if self.own or self.responsible != "torch":
            return ""
        if self.answer("dynamic=False") == same_failure.PASSES and self.first is not None:
            return "module: dynamic shapes"
        return LABELS.get(self.first.part, "") if self.first else ""

    @property
    def cures(self) -> tuple[str, ...]:
        """Modes and switches with which the program passes."""
        return tuple(
            s.name
            for s in self.steps
            if s.group not in ("own", "backends") and s.answer == same_failure.PASSES
        )

    def to_json(self) -> dict[str, Any]:
        """The object that packs and ``--json`` have."""
        return {
            "sentence": self.sentence,
            "first": self.first.name if self.first else None,
            "label": self.label,
            "blamed": self.blamed,
            "own": self.own,
            "responsible": self.responsible,
            "cures": list(self.cures),
            "steps": [to_json(s) for s in self.steps],
        }

    @property
    def sentence(self) -> str:
        """Where it begins, with the evidence, as a triager would write it."""
        first = OWN_BACKEND if self.own == "backend" else self.first
        if first is None:
            return "No ablation step shows the same failure." if self.steps else ""
        if first is EAGER:
            return "It fails without torch.compile too."
        before = [
            s.name for s in self.steps if s.group == "backends" and s.answer == same_failure.PASSES
        ]
        text = f"It fails with {first.name}"
        text += f" and passes with {_and(before)}" if before else ""
        text += f"; it passes {OWN_PASSES.name}" if self.own == "passes" else ""
        text += f", so it is for `{self.label}`" if self.label else ""
        text += f"; {self.blamed}" if self.blamed else ""
        if self.cures:
            text += f"; it passes with {_and(list(self.cures))}"
        return text + "."


def read_ablation(told: Mapping[str, Any]) -> Ablation:
    """Read the result of ``to_json``; raises ValueError if it is damaged."""
    found: Ablation = from_json(Ablation, told)
    return found


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
