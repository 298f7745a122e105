"""Workarounds for a failure until it is fixed: the changes of each, and the code that a user
writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.experiments.ablation import VARIANTS, WITHOUT_STATIC, CompileVariant
from reprokit.core.experiments.remedies import program_changes
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


def _setting(name: str, value: Any) -> CompileVariant:
    """Return a switch whose name is the line of Python that sets it."""
    return CompileVariant(f"{name} = {value!r}", "switches", {"configs": {name: value}})


HIGHER_LIMIT = _setting("torch._dynamo.config.recompile_limit", 64)
"""It lets a program compile again and again, and avoids only the limit."""
_NUMBERS_OF_MODULES = _setting("torch._dynamo.config.allow_unspec_int_on_nn_module", True)
BREAKS_ALLOWED = CompileVariant("fullgraph=False", "switches", {"compile": {"fullgraph": False}})
_FULLGRAPH = re.compile(r"\bfullgraph ?= ?True")
_DYNAMIC = next(variant for variant in VARIANTS if variant.name == "dynamic=True")
SETTINGS: Mapping[str, tuple[CompileVariant, ...]] = {
    "recompile-limit": (_NUMBERS_OF_MODULES, WITHOUT_STATIC, _DYNAMIC, HIGHER_LIMIT),
    "recompile-storm": (_NUMBERS_OF_MODULES, WITHOUT_STATIC, _DYNAMIC),
    "cudagraph-skip": (
        _setting("torch._inductor.config.triton.cudagraph_support_input_mutation", True),
    ),
}
"""Kind of a verdict -> settings that may avoid it, the smallest change first."""


_OF_TRAINING = tuple(
    _setting(f"torch._functorch.config.{name}", value)
    for name, value in (
        ("activation_memory_budget", 0.5),
        ("activation_memory_budget", 0.1),
        ("donated_buffer", False),
    )
)
_OF_MEMORY = (
    _setting("torch._inductor.config.reorder_for_peak_memory", False),
    next(variant for variant in VARIANTS if variant.name == "no fusion"),
    _setting("torch._inductor.config.allow_buffer_reuse", False),
)


def memory_settings(is_trained: bool) -> tuple[CompileVariant, ...]:
    """Return the settings whose peak of the memory a capture measures."""
    return (*_OF_MEMORY, *(_OF_TRAINING if is_trained else ()))


def remedies_in_capture(
    verdict: Verdict, seen: Observation, program: str, line: str
) -> tuple[CompileVariant, ...]:
    """Return what a capture tries against a failure: changed lines of ``program``, then settings.

    ``line`` is the text of the user's line that the verdict names.
    """
    if verdict.kind == "cudagraph-skip":
        return (*program_changes.mark_written(line), *SETTINGS[verdict.kind])
    marked = program_changes.mark_sizes(seen)
    changes = program_changes.changes_for(verdict, seen, program, line) if program else []
    changing = seen.recompiled[0].changing if seen.recompiled else ()
    only_sizes = bool(marked) and len(changing) == 1
    useless = _NUMBERS_OF_MODULES if only_sizes else None if marked else WITHOUT_STATIC
    settings = [v for v in settings_for(verdict, seen) if v is not useless]
    is_traced = verdict.phase in ("dynamo-trace", "guards")
    if is_traced and _FULLGRAPH.search(program):
        settings.append(BREAKS_ALLOWED)
    return (*changes, *marked, *settings)


def settings_for(verdict: Verdict, seen: Observation) -> tuple[CompileVariant, ...]:
    """Return settings that may avoid the failure, the smallest change first. Those against a graph
    break are in Dynamo's own hints.
    """
    if verdict.kind != "graph-break":
        return SETTINGS.get(verdict.kind, ())
    names = dict.fromkeys(name for broken in seen.breaks for name in broken.settings)
    return tuple(_setting(name, True) for name in names)


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
    remedies = [
        Remedy(variant.name, variant.name, variant.overrides)
        for variant in settings_for(verdict, seen)
        if "configs" in variant.overrides
    ]
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
