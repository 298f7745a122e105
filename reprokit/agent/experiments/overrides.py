"""Compile with other settings than the program asks for: what an ablation step changes."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from ...core.shared import cuts, operators
from ...core.shared.contract import events, run_names
from ..record import program_code
from ..torch_hooks import hooking, phases_and_graphs
from . import compiled_parts

OVERRIDES: dict[str, Any] = json.loads(os.environ.get(run_names.OVERRIDES_VARIABLE) or "{}")
"""``compile``: keyword arguments of ``torch.compile``; ``configs``: settings by their full names;
``region``: which parts of a model to compile; ``disallow``: a function of torch to keep out of
graphs; ``bisect``: how far a subsystem is applied; ``graphs``: each graph is compared with eager by
itself; ``without_passes``: the program's own passes are left out; ``fallback``: an operator of ATen
that Inductor calls as it is instead of lowering it.
"""


def install_overrides(overrides: dict[str, Any] | None = None) -> None:
    """Put other keyword arguments into every ``torch.compile``; another backend or mode drops what
    went with the old.
    """
    OVERRIDES.update(overrides or {})
    if not OVERRIDES:
        return
    hooking.DYNAMO_HOOKS.append(_change_dynamo_settings)
    hooking.INDUCTOR_HOOKS.append(_change_inductor_settings)
    phases_and_graphs.BEFORE_COMPILE.append(before_compile)
    if OVERRIDES.get("bisect"):
        _bisect(**OVERRIDES["bisect"])
    if OVERRIDES.get("graphs"):
        import torch

        from .per_graph import GraphWatch

        GraphWatch(torch).install()
    changes: dict[str, Any] = OVERRIDES.get("compile") or {}
    region, disallowed = OVERRIDES.get("region"), OVERRIDES.get("disallow")
    is_without = bool(OVERRIDES.get("without_passes"))
    if not (changes or region or disallowed or is_without):
        return
    import torch

    if disallowed and callable(operator := getattr(torch, disallowed, None)):
        import torch._dynamo

        torch._dynamo.disallow_in_graph(operator)

    real: Callable[..., Any] = torch.compile
    dropped = {"backend": ("mode", "options"), "mode": ("options",), "options": ("mode",)}
    gone = {name for change in changes for name in dropped.get(change, ())}

    def compile(model: Any = None, **options: Any) -> Any:
        options = {**{k: v for k, v in options.items() if k not in gone}, **changes}
        if is_without and isinstance(given := options.get("options"), dict):
            options["options"] = {
                k: v for k, v in given.items() if not program_code.is_pass(k)
            } or None
        if region:
            return compiled_parts.compile_parts(torch, real, model, region, options)
        return real(model, **options)

    torch.compile = compile


def before_compile() -> None:
    """Change what the program may set after it has imported the compiler."""
    if OVERRIDES.get("without_passes"):
        program_code.clear_passes()
    if name := OVERRIDES.pop("fallback", None):
        import torch
        from torch._inductor import lowering

        lowering.make_fallback(getattr(torch.ops.aten, name).default, override_decomp=True)


def _bisect(
    subsystem: str, most: int | None = None, only: str = "", without: Sequence[str] = ()
) -> None:
    """Apply the first ``most`` of a subsystem's steps, or those of the operator ``only``, and
    nothing of those ``without``.

    Each step's number is journalled; the one at ``most`` in words.
    """
    from torch._inductor.compiler_bisector import CompilerBisector

    from ..record import journal

    count = 0

    def disable_subsystem(
        backend: str, name: str, debug_info: Callable[[], str] | None = None
    ) -> bool:
        nonlocal count
        if name in without:
            return True
        if name != subsystem:
            return False
        count += 1
        said = debug_info() if debug_info is not None and (only or count == most) else ""
        if only:
            return operators.plain_operator(said) != only
        journal.write(events.Bisected(n=count, info=cuts.cut_head(said, 500)))
        return most is not None and count > most

    CompilerBisector.disable_subsystem = staticmethod(disable_subsystem)


def _change_dynamo_settings() -> None:
    change_settings("torch._dynamo")
    change_settings("torch._functorch")


def _change_inductor_settings() -> None:
    change_settings("torch._inductor")


def change_settings(package: str) -> None:
    """Change the settings of ``package``, which has just been imported."""
    for name, value in (OVERRIDES.get("configs") or {}).items():
        module, _, key = name.rpartition(".")
        if module.startswith(package):
            owner: Any = (
                importlib.import_module(module) if module.endswith("config") else _inner(module)
            )
            setattr(owner, key, value)


def _inner(name: str) -> Any:
    """The part of a config module that has settings of its own, such as
    ``torch._inductor.config.cpp``.
    """
    module, _, key = name.rpartition(".")
    return getattr(importlib.import_module(module), key)
