"""Follow the backward passes of a program: the gradients after each of them are results too."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def follow_backward(note: Callable[[], None]) -> None:
    """Call ``note`` after each backward pass of the program that ends without an exception."""
    import torch

    real = torch.autograd.backward

    @functools.wraps(real)
    def backward(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        if not torch.compiler.is_compiling():
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
    found = dict(getattr(owner, "__dict__", {}))
    function = inspect.unwrap(getattr(model, "__func__", model))
    if inspect.isfunction(function):
        with contextlib.suppress(ValueError):  # a variable has no value yet
            read = inspect.getclosurevars(function)
            found |= {**read.globals, **read.nonlocals}
    for name, value in found.items():
        if isinstance(value, torch.nn.Module):
            yield name, value
