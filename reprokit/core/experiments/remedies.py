"""Workarounds for a failure until it is fixed: the changes of each, and the code that a user
writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation


@dataclass(frozen=True)
class Remedy:
    """One workaround."""

    name: str
    code: str
    """The code that the user writes."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    is_eager: bool = False


EAGER = Remedy("eager", "# leave torch.compile out", is_eager=True)
REGIONS = (
    Remedy(
        "layer by layer",
        "for i, layer in enumerate(model.layers): model.layers[i] = torch.compile(layer)",
        {"region": "modules"},
    ),
    Remedy(
        "layers as one region",
        "Layer.forward = torch.compiler.nested_compile_region(Layer.forward)",
        {"region": "nested"},
    ),
    Remedy(
        "first half of the layers",
        "for i in range(len(model.layers) // 2): model.layers[i] = torch.compile(model.layers[i])",
        {"region": "half"},
    ),
)
RECOMPILES = frozenset({"recompile-limit", "recompile-storm"})


def _config(name: str, **configs: Any) -> Remedy:
    full = {f"torch.{key.replace('__', '.')}": value for key, value in configs.items()}
    return Remedy(
        name, "; ".join(f"{key} = {value!r}" for key, value in full.items()), {"configs": full}
    )


def _argument(name: str, value: Any, **more: Any) -> Remedy:
    text = f"{name}={value!r}"
    return Remedy(text, f"torch.compile(model, {text})", {"compile": {name: value, **more}})


def remedies_for(
    verdict: Verdict, seen: Observation, compile: Mapping[str, Any]
) -> tuple[Remedy, ...]:
    """Return the remedies to try against ``verdict``, with the smallest changes first and eager
    last.

    ``compile`` are the arguments of ``torch.compile`` that failed.
    """
    remedies: list[Remedy] = []
    if verdict.kind in RECOMPILES:
        remedies += [
            _config(
                "integers of modules dynamic", _dynamo__config__allow_unspec_int_on_nn_module=True
            ),
            _config("a higher limit", _dynamo__config__recompile_limit=64),
        ]
    if verdict.kind == "graph-break":
        remedies.append(
            _config("scalars in the graph", _dynamo__config__capture_scalar_outputs=True)
        )
    if seen.departs and seen.departs_in.endswith("passes"):
        remedies.append(
            _config(
                f"without the pass {seen.departs}", _inductor__config__disabled_passes=seen.departs
            )
        )
    if seen.departs and seen.departs_in == "lowerings":
        remedies.append(
            Remedy(
                f"without the lowering of {seen.departs}",
                f"torch._inductor.lowering.make_fallback(torch.ops.aten.{seen.departs}.default)",
                {"fallback": seen.departs},
            )
        )
    # fullgraph forbids a graph break
    if seen.departs and seen.departs_in == "lowerings" and not compile.get("fullgraph"):
        remedies.append(
            Remedy(
                f"graph break at {seen.departs}",
                f"torch._dynamo.disallow_in_graph(torch.{seen.departs})",
                {"disallow": seen.departs},
            )
        )
    if compile.get("mode") not in (None, "default"):
        remedies.append(_argument("mode", "default"))
    if "reduce-overhead" in str(compile.get("mode")) or compile.get("mode") == "max-autotune":
        remedies.append(_argument("mode", "max-autotune-no-cudagraphs"))
    if compile.get("fullgraph"):
        remedies.append(_argument("fullgraph", False))
    remedies += [
        _argument("dynamic", value)
        for value in (False, True)
        if compile.get("dynamic") is not value
    ]
    remedies += REGIONS
    if verdict.phase not in ("dynamo-trace", "guards"):
        remedies += [
            _config(
                "without fusion",
                _inductor__config__max_fusion_size=1,
                _inductor__config__epilogue_fusion=False,
            ),
            _config("without the pattern matcher", _inductor__config__pattern_matcher=False),
            _argument("backend", "aot_eager"),
        ]
    return (*remedies, EAGER)


NEEDS_GPU = ("CUDA graphs off", "the plain architecture instead of its a-variant", "another ptxas")
"""Remedies that are tried only with a device, or with kernels for one."""
