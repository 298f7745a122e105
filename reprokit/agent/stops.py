"""End a compile behind the phase that a question is about: what comes after it cannot change the answer."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

BEFORE_INDUCTOR = frozenset({"dynamo-trace", "guards"})
BEFORE_LOWERING = frozenset({"backend", "aot", "partition", "fx-passes"})
BEFORE_BUILD = frozenset({"codegen"})
BUILDING = frozenset({"cpp-build", "triton-compile", "worker-wait"})


def install(phase: str, is_backward: bool, stop: Callable[[], None]) -> None:
    """Call ``stop`` when a graph of the wanted direction has left ``phase``; it must not return.

    Other phases than those here are not stopped behind. Where Inductor is not imported yet, it has no phases to stop behind. A program that compiles several graphs is stopped at the first, so the
    caller must see once that the failure still shows.
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

    def if_wanted(graph: Any, *_: Any) -> None:
        if bool(getattr(graph, "is_backward", False)) == is_backward:
            stop()

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


def _around(
    owner: Any, name: str, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None
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
