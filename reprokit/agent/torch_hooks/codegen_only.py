"""Compile on fake tensors: Dynamo, AOT and Inductor run to the end of code generation.

Parameters are fake and take no memory, so a model can have any size. The modules that Inductor
generates are written, but never built, loaded or called, because fake tensors have no addresses.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...core.shared.contract import events
from ...core.shared.errors import BadTarget
from ..record import compile_settings, generated_kernels, journal
from .symbols import OLDEST_WITH_FAKE_TENSORS, parse_version

load: Callable[[str, str], Any]
"""Inductor's own function that imports a module that it has written; set when code generation is
the last step.
"""


def stop_after_codegen() -> None:
    """Stop Inductor after code generation for the rest of the process.

    Inductor then uses no real memory, compiler or cache. Raises BadTarget for a torch older than
    2.12.
    """
    import torch
    import torch._inductor.codecache as codecache
    import torch._inductor.config as config

    if parse_version(torch.__version__) < OLDEST_WITH_FAKE_TENSORS:
        raise BadTarget(
            f"torch {torch.__version__} cannot run compiled regions on fake tensors, which --gpu"
            " and fake weights need; use torch 2.12 or newer, or --weights real"
        )
    from torch._inductor.cpu_vec_isa import VecISA

    global load
    if "load" in globals():  # a fork that runs the target again
        return
    load = real = codecache.PyCodeCache.load_by_key_path

    def load_by_key_path(key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            generated_kernels.note_module(path, real)
        except Exception as problem:
            journal.write_event(events.AgentProblem(hook="kernels", problem=repr(problem)))
        return SimulatedModule(key, path)

    settings = {
        "wrap_inductor_compiled_regions": True,  # outputs come from metadata, not from a call
        "compile_threads": 1,
        "cpp.vec_isa_ok": True,  # Inductor else builds a C++ program to test vector instructions
        "shape_padding": False,  # pad_mm times real tensors
        "force_disable_caches": True,  # a cached artifact skips lowering and code generation
    }
    # torch warns of it, as if the program had switched its caches off
    warnings.filterwarnings("ignore", ".*disabled by torch.compiler.config.force_disable_caches")
    codecache.PyCodeCache.load_by_key_path = staticmethod(load_by_key_path)  # type: ignore[method-assign]
    # Inductor else builds C++ programs to test bf16, VNNI and AMX
    VecISA.check_build = lambda self, code: True  # type: ignore[method-assign]
    _replace_apply()
    compile_settings.OWN_KEYS.update(settings)
    for name, value in settings.items():
        owner, _, key = name.rpartition(".")
        setattr(getattr(config, owner) if owner else config, key, value)


def _replace_apply() -> None:
    """Make ``.to()`` of a module replace fake parameters instead of swapping their contents.

    Torch cannot swap the contents of fake tensors, because its caches have weak references to them.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    real: Any = torch.nn.Module._apply

    @functools.wraps(real)
    def _apply(
        self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> torch.nn.Module:
        own = [
            (store, name, t)
            for store in (self._parameters, self._buffers)
            for name, t in store.items()
        ]
        if not any(isinstance(t, FakeTensor) for _, _, t in own):
            result: torch.nn.Module = real(self, fn, recurse)
            return result
        for child in self.children() if recurse else ():
            child._apply(fn, recurse)
        # the dict is shared by the whole model, because weights may be tied
        moved = getattr(fn, "__dict__", {}).setdefault("_reprokit_moved", {})
        for store, name, tensor in own:
            if tensor is None:
                continue
            if id(tensor) not in moved:
                with torch.no_grad():
                    new = fn(tensor)
                if new is not tensor and store is self._parameters:
                    new = torch.nn.Parameter(new, tensor.requires_grad)
                moved[id(tensor)] = tensor, new
            store[name] = moved[id(tensor)][1]
        return self

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


class SimulatedModule(SimpleNamespace):
    """Replace a generated module. ``core.judge.responsible.simulation_gaps`` knows its name."""

    def __init__(self, key: str, path: str) -> None:
        runner = None
        with open(path) as file:
            if "runner = Runner(" in file.read():
                runner = SimpleNamespace(
                    call=self._call, partitions=[], recursively_apply_fns=lambda fns: None
                )
        super().__init__(__file__=path, key=key, call=self._call, runner=runner)
        self.recursively_apply_fns = getattr(runner, "recursively_apply_fns", None)

    @staticmethod
    def _call(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("this module was generated for fake tensors and cannot be called")
