"""Compile on fake tensors: Dynamo, AOT and Inductor run to the end of code generation, and no code
runs.

Parameters are fake (no memory), so a model of any size fits. Inductor's modules are written but
never built, loaded or called: calling them would dereference pointers that do not exist.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from ...core.shared.contract import events
from ...core.shared.errors import BadTarget
from ..record import compile_settings as note
from ..record import generated_kernels, journal

load: Any = None
"""Inductor's own import of a text that it has written."""


def stop_after_codegen() -> None:
    """Stop Inductor after code generation, and keep it from touching real memory, compilers or
    caches; for good.
    """
    import torch
    import torch._inductor.codecache as codecache
    import torch._inductor.config as config

    if not hasattr(config, "wrap_inductor_compiled_regions"):
        raise BadTarget(
            f"torch {torch.__version__} cannot run compiled regions on fake tensors, as fake"
            " weights and --gpu need it; use torch 2.10 or newer, or --weights real"
        )
    from torch._inductor.cpu_vec_isa import VecISA

    global load
    load = real = codecache.PyCodeCache.load_by_key_path

    def load_by_key_path(key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            generated_kernels.note_module(path, real)
        except Exception as problem:
            journal.write(events.AgentProblem(hook="kernels", problem=repr(problem)))
        return SimulatedModule(key, path)

    settings = {
        "wrap_inductor_compiled_regions": True,  # fake outputs come from metadata, not from a call
        "compile_threads": 1,
        "cpp.vec_isa_ok": True,  # the question whether vectors work is answered by building C++
        "shape_padding": False,  # pad_mm decides by timing real tensors
        "force_disable_caches": True,  # a cached artifact would hide lowering and code generation
    }
    codecache.PyCodeCache.load_by_key_path = staticmethod(load_by_key_path)
    VecISA.check_build = lambda self, code: True  # the same question for bf16, VNNI and AMX
    _move(torch)
    note.OURS.update(settings)
    for name, value in settings.items():
        owner, _, key = name.rpartition(".")
        setattr(getattr(config, owner) if owner else config, key, value)


def _move(torch: Any) -> None:
    """``.to()`` of a module with fake parameters: torch swaps them in place, which the weak
    references of its caches forbid.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    real = torch.nn.Module._apply

    @functools.wraps(real)
    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        own = [
            (store, name, t)
            for store in (self._parameters, self._buffers)
            for name, t in store.items()
        ]
        if not any(isinstance(t, FakeTensor) for _, _, t in own):
            return real(self, fn, recurse)
        for child in self.children() if recurse else ():
            child._apply(fn, recurse)
        # one for the whole model: weights may be tied
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

    torch.nn.Module._apply = _apply


class SimulatedModule(SimpleNamespace):
    """Takes the place of the generated module; ``core.judge.responsible.simulation_gaps`` knows it
    by its name.
    """

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
