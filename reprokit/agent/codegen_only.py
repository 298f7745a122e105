"""Compile on fake tensors: Dynamo, AOT and Inductor run to the end of code generation, and no code runs.

Parameters are fake (no memory), so a model of any size fits. Inductor's modules are written but never
built, loaded or called: calling them would dereference pointers that do not exist.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from . import settings as note
from .factory import BadTarget


def install() -> None:
    """Stop Inductor after code generation, and keep it from touching real memory, compilers or caches; for good."""
    import torch
    import torch._inductor.codecache as codecache
    import torch._inductor.config as config

    if not hasattr(config, "wrap_inductor_compiled_regions"):
        raise BadTarget(
            f"torch {torch.__version__} cannot run compiled regions on fake tensors; use --weights real, or torch 2.10 or newer"
        )
    from torch._inductor.cpu_vec_isa import VecISA

    def load_by_key_path(key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        return _Unloaded(key, path)

    settings = {
        "wrap_inductor_compiled_regions": True,  # fake outputs come from metadata, not from a call
        "compile_threads": 1,
        "cpp.vec_isa_ok": True,  # the question whether vectors work is answered by building C++
        "shape_padding": False,  # pad_mm decides by timing real tensors
        "force_disable_caches": True,  # a cached artifact would hide lowering and code generation
    }
    codecache.PyCodeCache.load_by_key_path = staticmethod(load_by_key_path)
    VecISA.check_build = lambda self, code: True  # the same question for bf16, VNNI and AMX
    note.OURS.update(settings)
    for name, value in settings.items():
        owner, _, key = name.rpartition(".")
        setattr(getattr(config, owner) if owner else config, key, value)


class _Unloaded(SimpleNamespace):
    """Stands where the generated module would be."""

    def __init__(self, key: str, path: str) -> None:
        runner = None
        with open(path) as file:
            if "runner = Runner(" in file.read():
                runner = SimpleNamespace(call=self._call, partitions=[], recursively_apply_fns=lambda fns: None)
        super().__init__(__file__=path, key=key, call=self._call, runner=runner)
        self.recursively_apply_fns = getattr(runner, "recursively_apply_fns", None)

    @staticmethod
    def _call(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("this module was generated for fake tensors and cannot be called")
