"""Replace the functions that enter the compiler, so that a program runs in another way.

``TORCH_COMPILE_DISABLE`` alone is not enough to run a program without the compiler: with
``fullgraph=True`` torch then raises an exception, because it finds no compiled frames, and
torch.export does not read it. The text of this module is also the start of a program that runs
without the compiler, so it imports nothing of reprokit.
"""

from __future__ import annotations

import contextlib
import inspect
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any

VARIABLES = {"TORCH_COMPILE_DISABLE": "1"}
"""Environment variables that disable all other uses of the compiler."""


class PlainProgram:
    """Replaces the ``torch.export.ExportedProgram`` of a model that is not exported."""

    def __init__(self, model: Any, args: Any, kwargs: Any) -> None:
        self.model, self.example_inputs = model, (tuple(args), dict(kwargs or {}))

    def module(self, *_: Any, **__: Any) -> Any:
        """Return the model."""
        return self.model


def replace_entries(torch: Any, enter: Callable[[Any, dict[str, Any]], Any]) -> None:
    """Replace each function that enters the compiler with one that calls ``enter``.

    ``enter`` takes a model and the options of torch.compile, and returns what the program calls.
    """
    packages: dict[str, Any] = {}
    packages_replaced: list[bool] = []

    def compile(model: Any = None, *_: Any, **options: Any) -> Any:
        if model is None:
            return lambda function: compile(function, **options)
        entered = enter(model, options)
        if entered is model:
            _add_aot_compile(model)
        return entered

    def replace_aotinductor() -> None:
        # importing torch._inductor takes a second, and only few programs need it
        real_load = torch._inductor.aoti_load_package

        def load(path: Any, *args: Any, **options: Any) -> Any:
            model = packages.get(str(path))
            return real_load(path, *args, **options) if model is None else model

        torch._inductor.aoti_compile_and_package = package
        torch._inductor.aoti_load_package = load
        packages_replaced.append(True)

    def package(program: Any, *_: Any, package_path: Any = None, **__: Any) -> Any:
        path = "model.pt2" if package_path is None else package_path
        packages[str(path)] = program.model
        return path

    def export(model: Any, args: Any = (), kwargs: Any = None, **_: Any) -> PlainProgram:
        if not packages_replaced:
            replace_aotinductor()
        if not isinstance(args, tuple):  # torch.export refuses it too
            raise TypeError(f"the arguments of torch.export.export are a {type(args).__name__}")
        with contextlib.suppress(ValueError):  # a function in C has no signature
            # torch.export raises a TypeError too if an argument of the model is missing
            inspect.signature(getattr(model, "forward", model)).bind(*args, **(kwargs or {}))
        return PlainProgram(enter(model, {}), args, kwargs)

    torch.compile = compile  # torch.nn.Module.compile calls it
    torch.export.export = export
    if "torch._inductor" in sys.modules:
        replace_aotinductor()


def _add_aot_compile(model: Any) -> None:
    """Add the method that ``torch.compile`` adds to a function or to the forward of a module."""
    forward = getattr(model, "forward", None)
    function = getattr(forward, "__func__", forward) or model
    if isinstance(function, types.FunctionType):
        function.aot_compile = lambda inputs: function  # type: ignore[attr-defined]


def run_without_compiler(torch: Any) -> None:
    """Let the program of the command line run without the compiler."""
    sys.argv = sys.argv[1:]
    replace_entries(torch, lambda model, options: model)
    runpy.run_path(sys.argv[0], run_name="__main__")
