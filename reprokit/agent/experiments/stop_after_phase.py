"""End a compile behind the phase that a question is about: what comes after it cannot change the
answer.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

BEFORE_INDUCTOR = frozenset({"dynamo-trace", "guards"})
BEFORE_LOWERING = frozenset({"backend", "aot", "partition", "fx-passes"})
BEFORE_BUILD = frozenset({"codegen"})
BUILDING = frozenset({"cpp-build", "triton-compile", "worker-wait"})


def stop_after(phase: str, is_backward: bool, stop: Callable[[], None]) -> None:
    """Call ``stop`` when a graph of the wanted direction has left ``phase``; it must not return.

    Other phases than those here are not stopped behind. Where Inductor is not imported yet, it has
    no phases to stop behind. A program that compiles several graphs is stopped at the first, so the
    caller must see once that the failure still shows. Where a backward graph is of interest, the
    forward one gets as far and is then run as it is, unbuilt.
    """
    if phase in BEFORE_INDUCTOR:
        from torch._dynamo.output_graph import OutputGraph

        _around(OutputGraph, "_call_user_compiler", before=lambda *_: stop())
        return
    if "torch._inductor.compile_fx" not in sys.modules:
        return
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V

    forwards = _Forwards() if is_backward else None

    def if_wanted(graph: Any, *_: Any) -> None:
        if bool(getattr(graph, "is_backward", False)) == is_backward:
            stop()
        elif forwards is not None and forwards.is_at_work:
            raise _Past

    def of_current(*_: Any) -> None:
        if_wanted(V.graph)

    if phase in BEFORE_LOWERING:
        _around(GraphLowering, "run", before=if_wanted)
    elif phase == "lowering":
        _around(GraphLowering, "run", after=if_wanted)
    elif phase == "scheduler":
        _around(Scheduler, "codegen", before=of_current)
    elif phase in BEFORE_BUILD:
        _around(PyCodeCache, "load_by_key_path", before=of_current)
    elif phase in BUILDING:
        _around(PyCodeCache, "load_by_key_path", after=of_current)


class _Past(BaseException):
    """A forward graph has left the phase."""


class _Forwards:
    """Gives AOT a forward graph itself once it has left the phase, as Inductor does with one that
    computes nothing.

    It gets as far as that because the same failure may be in it: what a backward computes, the
    partitioner moves.
    """

    def __init__(self) -> None:
        from torch._functorch.aot_autograd import make_boxed_func
        from torch._inductor import compile_fx
        from torch.fx import GraphModule

        self.is_at_work = False
        real = compile_fx._compile_fx_inner

        @functools.wraps(real)
        def inner(gm: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("is_backward"):
                return real(gm, inputs, *args, **kwargs)
            own = GraphModule(gm, copy.deepcopy(gm.graph))  # passes change the one that is compiled
            before, self.is_at_work = self.is_at_work, True
            try:
                return real(gm, inputs, *args, **kwargs)
            except _Past:
                return make_boxed_func(own.forward)
            finally:
                self.is_at_work = before

        compile_fx._compile_fx_inner = inner


def _around(
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
