"""Compile with settings that replace those of the program, as an ablation step or a remedy does."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from typing import Any, TypedDict

from ...core.shared import without_compile
from ...core.shared.contract import run_names
from ...core.shared.source import entry_programs
from .. import enter_compiler
from ..record import program_code
from ..torch_hooks import ablation_hooks, phases_and_graphs, symbols
from . import compiled_parts, sanitizers


class _BisectSubsystem(TypedDict):
    subsystem: str


class BisectLimits(_BisectSubsystem, total=False):
    """The arguments of :func:`_bisect`."""

    most: int | None
    only: str
    without: list[str]


class Overrides(TypedDict, total=False):
    """The changed settings, as the host writes them."""

    compile: dict[str, Any]
    """Keyword arguments of ``torch.compile``."""
    configs: dict[str, Any]
    """Compiler settings by their full names."""
    region: compiled_parts.Region
    """The parts of a model to compile."""
    disallow: str
    """A function of torch that is kept out of graphs."""
    bisect: BisectLimits
    """How many steps of a subsystem are applied."""
    graphs: bool
    """Each graph is compared with eager separately."""
    without_passes: bool
    """The program's own passes are not applied."""
    entry: str
    """How the compiler is entered."""
    dynamic_sizes: dict[str, list[int]]
    """Names of tensors in the compiled functions, with the dimensions that are marked dynamic."""
    static_inputs: list[str]
    """Names of tensors in the compiled functions whose addresses are marked static."""
    fallback: str
    """An ATen operator that Inductor calls instead of lowering it."""
    sanitizers: bool
    """The generated C++ is built with the sanitizers of GCC."""


OVERRIDES: Overrides = json.loads(os.environ.get(run_names.OVERRIDES_VARIABLE) or "{}")


def install_overrides(overrides: Overrides | None = None) -> None:
    """Apply the overrides to every compile of this process.

    If the overrides change the backend or the mode, the program's arguments that depend on it are
    dropped.
    """
    if overrides:
        OVERRIDES.update(overrides)
    if not OVERRIDES:
        return
    symbols.DYNAMO_HOOKS.append(_change_dynamo_settings)
    symbols.INDUCTOR_HOOKS.append(_change_inductor_settings)
    phases_and_graphs.BEFORE_COMPILE.append(before_compile)
    if OVERRIDES.get("bisect"):
        ablation_hooks.skip_compiler_steps(**OVERRIDES["bisect"])
    if OVERRIDES.get("graphs"):
        from .per_graph import GraphComparer

        GraphComparer().install_hook()
    if OVERRIDES.get("sanitizers"):
        sanitizers.build_with_sanitizers()
    changes: dict[str, Any] = OVERRIDES.get("compile") or {}
    region, disallowed = OVERRIDES.get("region"), OVERRIDES.get("disallow")
    drops_passes = bool(OVERRIDES.get("without_passes"))
    # a backend of torch.compile also replaces torch.export and AOTInductor
    entry = OVERRIDES.get("entry") or (entry_programs.COMPILE if "backend" in changes else "")
    if not (changes or region or disallowed or drops_passes or entry):
        return
    import torch

    if disallowed and callable(operator := getattr(torch, disallowed, None)):
        import torch._dynamo

        torch._dynamo.disallow_in_graph(operator)

    real: Callable[..., Any] = torch.compile
    dependent = {"backend": ("mode", "options"), "mode": ("options",), "options": ("mode",)}
    dropped = {name for change in changes for name in dependent.get(change, ())}

    def compile(model: Any = None, **arguments: Any) -> Any:
        arguments = {**{k: v for k, v in arguments.items() if k not in dropped}, **changes}
        if drops_passes and isinstance(options := arguments.get("options"), dict):
            arguments["options"] = {
                k: v for k, v in options.items() if not program_code.is_pass(k)
            } or None
        if region:
            return compiled_parts.compile_parts(real, model, region, arguments)
        return real(model, **arguments)

    if entry in ("", entry_programs.COMPILE):
        torch.compile = compile
    if entry:
        functions = None if entry == entry_programs.COMPILE else enter_compiler.current_functions()

        def enter(model: Any, options: dict[str, Any]) -> Any:
            if functions is None:
                return compile(model, **options)
            return enter_compiler.enter_compiler(model, entry, {}, functions)

        without_compile.replace_entries(torch, enter)


def before_compile() -> None:
    """Apply the overrides that the program could undo after it has imported the compiler."""
    if OVERRIDES.get("without_passes"):
        program_code.clear_passes()
    if name := OVERRIDES.pop("fallback", None):
        ablation_hooks.use_fallback(name)


def _change_dynamo_settings() -> None:
    change_settings("torch._dynamo")
    change_settings("torch._functorch")
    sizes, static = OVERRIDES.get("dynamic_sizes"), OVERRIDES.get("static_inputs")
    if sizes or static:
        ablation_hooks.mark_inputs(sizes, static or ())


def _change_inductor_settings() -> None:
    change_settings("torch._inductor")


def change_settings(package: str) -> None:
    """Apply the override ``configs`` to the modules of ``package``, which has been imported."""
    for name, value in (OVERRIDES.get("configs") or {}).items():
        module, _, key = name.rpartition(".")
        if module.startswith(package):
            owner: Any = (
                importlib.import_module(module)
                if module.endswith("config")
                else _config_section(module)
            )
            setattr(owner, key, value)


def _config_section(name: str) -> Any:
    """Return a section of a config module, such as ``torch._inductor.config.cpp``."""
    module, _, key = name.rpartition(".")
    return getattr(importlib.import_module(module), key)
