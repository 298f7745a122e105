"""End the compile of a probe after the phase in which the failure occurs.

The phases after it cannot change whether the failure occurs.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BEFORE_INDUCTOR = frozenset({"dynamo-trace", "guards"})
BEFORE_LOWERING = frozenset({"backend", "aot", "partition", "fx-passes"})
BEFORE_BUILD = frozenset({"codegen"})
BUILDING = frozenset({"cpp-build", "triton-compile", "worker-wait"})


def stop_after(phase: str, is_backward: bool, stop: Callable[[], None]) -> None:
    """Call ``stop``, which must not return, when a graph has left ``phase``.

    ``is_backward`` selects backward graphs; a forward graph is then compiled as far as ``phase``
    and runs uncompiled. A phase that no constant of this module names has no effect, and neither
    has a phase of Inductor in a process that has not imported Inductor. A program that compiles
    several graphs stops at the first one, so the caller must check once that the failure still
    occurs.
    """
    if phase in BEFORE_INDUCTOR:
        from torch._dynamo.output_graph import OutputGraph

        _wrap(OutputGraph, "_call_user_compiler", before=lambda *_: stop())
        return
    if "torch._inductor.compile_fx" not in sys.modules:
        return
    from torch._inductor.codecache import AotCodeCompiler, PyCodeCache
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V

    forward_graphs = _ForwardGraphs() if is_backward else None

    def stop_at(graph: Any, *_: Any) -> None:
        if bool(getattr(graph, "is_backward", False)) == is_backward:
            stop()
        elif forward_graphs is not None and forward_graphs.is_compiling:
            raise _ForwardPassedPhase

    def stop_at_current(*_: Any) -> None:
        stop_at(V.graph)

    if phase in BEFORE_LOWERING:
        _wrap(GraphLowering, "run", before=stop_at)
    elif phase == "lowering":
        _wrap(GraphLowering, "run", after=stop_at)
    elif phase == "scheduler":
        _wrap(Scheduler, "codegen", before=stop_at_current)
    elif phase in BEFORE_BUILD:
        _wrap(PyCodeCache, "load_by_key_path", before=stop_at_current)
        _wrap(AotCodeCompiler, "compile", before=stop_at_current)
    elif phase in BUILDING:
        _wrap(PyCodeCache, "load_by_key_path", after=stop_at_current)
        _wrap(AotCodeCompiler, "compile", after=stop_at_current)


def only_check_syntax() -> None:
    """Let the C++ compiler check the code of kernels, and write nothing.

    Its front end finds the errors in the code. The kernels cannot run, so the compile must be
    stopped after the phase ``cpp-build``.
    """
    from torch._inductor import codecache, cpp_builder

    real_run, real_build = cpp_builder.run_compile_cmd, codecache._worker_compile_cpp
    real_load = vars(codecache.CppCodeCache)["_load_library"].__func__

    def check(command: str, *args: Any, **kwargs: Any) -> None:
        if ".cpp" in command:  # and not only linked
            real_run(f"{command} -fsyntax-only", *args, **kwargs)

    @functools.wraps(real_build)
    def build(*args: Any, **kwargs: Any) -> None:
        cpp_builder.run_compile_cmd = check  # type: ignore[assignment]
        try:
            real_build(*args, **kwargs)
        finally:
            cpp_builder.run_compile_cmd = real_run

    def load(cache: Any, path: str, *args: Any) -> Any:
        return real_load(cache, path, *args) if os.path.exists(path) else _NotBuilt("kernel")

    codecache._worker_compile_cpp = build
    setattr(codecache.CppCodeCache, "_load_library", classmethod(load))  # noqa: B010


class _NotBuilt(types.ModuleType):
    """A library with any function."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


class _Lowered(BaseException):
    """The lowering of a graph has ended."""


@contextlib.contextmanager
def stopped_after_lowering() -> Iterator[None]:
    """End the first compile in this context after lowering; the context ends with it."""
    from torch._inductor.graph import GraphLowering

    def raise_lowered(*_: Any) -> None:
        raise _Lowered

    real = GraphLowering.codegen
    GraphLowering.codegen = raise_lowered  # type: ignore[method-assign, assignment]
    try:
        yield
    except _Lowered:
        pass
    finally:
        GraphLowering.codegen = real  # type: ignore[method-assign]


class _ForwardPassedPhase(BaseException):
    """A forward graph has left the phase."""


class _ForwardGraphs:
    """Return a forward graph to AOT uncompiled when it has left the phase.

    The forward graph is compiled as far as the phase because the same failure may be in it: the
    partitioner moves operators between the forward and the backward.
    """

    def __init__(self) -> None:
        from torch._functorch._aot_autograd.utils import make_boxed_func
        from torch._inductor import compile_fx
        from torch.fx import GraphModule

        self.is_compiling = False
        real = compile_fx._compile_fx_inner

        @functools.wraps(real)
        def compile_inner(gm: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("is_backward"):
                return real(gm, inputs, *args, **kwargs)
            uncompiled = GraphModule(gm, copy.deepcopy(gm.graph))  # graph passes change ``gm``
            was_compiling, self.is_compiling = self.is_compiling, True
            try:
                return real(gm, inputs, *args, **kwargs)
            except _ForwardPassedPhase:
                return make_boxed_func(uncompiled.forward)
            finally:
                self.is_compiling = was_compiling

        compile_fx._compile_fx_inner = compile_inner  # type: ignore[assignment]


def _wrap(
    owner: Any,
    name: str,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    descriptor = vars(owner)[name]
    is_bound = isinstance(descriptor, (classmethod, staticmethod))
    real = descriptor.__func__ if is_bound else descriptor

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            before(*args)
        result = real(*args, **kwargs)
        if after:
            after(*args)
        return result

    setattr(owner, name, type(descriptor)(wrapped) if is_bound else wrapped)
