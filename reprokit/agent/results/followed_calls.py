"""Follow calls beside those of compiled callables: of exported programs and of packages of
AOTInductor, which are recorded and stay as they are, and the backward passes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Record = Callable[[Callable[..., Any], Any], Callable[..., Any]]
"""Takes a compiled callable and its model, and returns a callable whose calls are recorded."""


class ExportFollower:
    """Knows the model of each exported program and of each package of this process."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._models: dict[int, tuple[Any, Any]] = {}
        """By the id of the program, with the program itself, so that no other one gets the id."""
        self._packages: dict[str, Any] = {}
        self._has_replaced_package = False

    def replace_export(self) -> None:
        """Replace the functions of torch that export a model, compile and load it."""
        import torch

        real = torch.export.export

        @functools.wraps(real)
        def export(mod: Any, *args: Any, **kwargs: Any) -> Any:
            program = real(mod, *args, **kwargs)
            # importing torch._inductor takes a second, and only few programs need it; ``real`` may
            # replace the functions of AOTInductor itself
            self._replace_package()
            self._models[id(program)] = program, mod
            return program

        torch.export.export = export

    def _replace_package(self) -> None:
        if self._has_replaced_package:
            return
        self._has_replaced_package = True
        import torch

        inductor: Any = torch._inductor
        program_class: Any = torch.export.ExportedProgram
        real_package, real_load = inductor.aoti_compile_and_package, inductor.aoti_load_package
        real_module = program_class.module

        @functools.wraps(real_package)
        def package(exported_program: Any, *args: Any, **kwargs: Any) -> Any:
            path = real_package(exported_program, *args, **kwargs)
            self._packages[str(path)] = self._model_of(exported_program)
            return path

        @functools.wraps(real_load)
        def load(path: Any, *args: Any, **kwargs: Any) -> Any:
            loaded, model = real_load(path, *args, **kwargs), self._packages.get(str(path))
            return loaded if model is None else self._record(loaded, model)

        @functools.wraps(real_module)
        def module(program: Any, *args: Any, **kwargs: Any) -> Any:
            made, model = real_module(program, *args, **kwargs), self._model_of(program)
            is_of_torch = sys._getframe(1).f_globals.get("__name__", "").startswith("torch.")
            return made if is_of_torch or model is None else self._record(made, model)

        inductor.aoti_compile_and_package, inductor.aoti_load_package = package, load
        program_class.module = module

    def _model_of(self, program: Any) -> Any:
        return self._models.get(id(program), (None, None))[1]


def follow_backward(note: Callable[[], None]) -> None:
    """Call ``note`` after each backward pass of the program that ends without an exception."""
    import torch

    real = torch.autograd.backward
    depth = 0

    @functools.wraps(real)
    def backward(*args: Any, **kwargs: Any) -> None:
        nonlocal depth
        if torch.compiler.is_compiling():
            real(*args, **kwargs)
            return
        depth += 1
        try:
            real(*args, **kwargs)
        finally:
            depth -= 1
        if not depth:  # a pass inside a pass, such as that of a checkpoint, ends with half of them
            note()

    torch.autograd.backward = backward


def modules_of(model: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a callable reads, each with its name in the program.

    They are the module itself, with the name ``model``, or those in the attributes of the object
    of a method, and in the variables that a function reads from around it.
    """
    import torch

    if isinstance(model, torch.nn.Module):
        yield "model", model
        return
    while isinstance(model, functools.partial):
        model = model.func
    owner = getattr(model, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        yield "self", owner
        return
    found = dict(getattr(owner, "__dict__", {}))
    function = inspect.unwrap(getattr(model, "__func__", model))
    if inspect.isfunction(function):
        with contextlib.suppress(ValueError):  # a variable has no value yet
            read = inspect.getclosurevars(function)
            found |= {**read.globals, **read.nonlocals}
    for name, value in found.items():
        if isinstance(value, torch.nn.Module):
            yield name, value
