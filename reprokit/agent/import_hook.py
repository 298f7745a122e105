"""Wait, without importing anything of torch, until the program imports it itself."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Hooks = tuple[Callable[[], None] | None, Callable[[], None] | None]
"""What to call before and after a module is executed."""


class _ThenLoader(Loader):
    """A loader that calls ``before`` and ``after`` around the real one's ``exec_module``, the first
    time.
    """

    def __init__(self, inner: Loader, name: str, hooks: dict[str, Hooks]) -> None:
        self._inner, self._name, self._hooks = inner, name, hooks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look as if we had never been between it and its loader.
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        before, after = self._hooks.pop(self._name, (None, None))
        if before:
            _quietly(before)
        with _without_collections():
            self._inner.exec_module(module)
        if after:
            _quietly(after)


class _Waiter(MetaPathFinder):
    """Watches for four imports. Looking for a module (``find_spec``) is not importing it: many
    programs only ask.
    """

    def __init__(self) -> None:
        self._hooks: dict[str, Hooks] = {
            "torch": (_before_torch, _after_torch),
            "triton": (_before_triton, None),
            "torch._dynamo": (None, _after_dynamo),
            "torch._inductor.compile_fx": (None, _after_inductor),
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._hooks:
            return None
        for finder in sys.meta_path:  # an editable torch has a finder of its own
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _ThenLoader(spec.loader, fullname, self._hooks)
                    return spec
        return None


def wait_for_torch() -> None:
    """Install the watch; importing torch later, or never, is the program's choice."""
    if not any(isinstance(f, _Waiter) for f in sys.meta_path):
        sys.meta_path.insert(0, _Waiter())


def _before_triton() -> None:
    """A program that compiles kernels and imports no torch."""
    from .record import process_start

    process_start.introduce_process()


def _before_torch() -> None:
    from ..core.shared.contract import run_names
    from .record import process_start

    process_start.introduce_process()
    if os.environ.get(run_names.GPU_VARIABLE):
        from . import simulate

        simulate.before_torch()


def _after_torch() -> None:
    """Import what is asked for; the rest of the agent is not copied for every run."""
    from ..core.shared.contract import run_names
    from .torch_hooks import hooking, torch_trace

    hooking.attempt_hook(torch_trace.keep_apart)
    if os.environ.get(run_names.OVERRIDES_VARIABLE):
        from .experiments import overrides

        overrides.install_overrides()
    if os.environ.get(run_names.RESULTS_VARIABLE):
        from .results import result_recorder

        result_recorder.install_recorder()
    if os.environ.get(run_names.GPU_VARIABLE):
        from . import simulate

        simulate.after_torch()


def _after_dynamo() -> None:
    from . import install_hooks

    install_hooks.watch_dynamo()


def _after_inductor() -> None:
    from . import install_hooks

    install_hooks.watch_inductor()


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the collector out while modules are executed: it finds nothing there, for a sixth of the
    processor's time.

    Importing torch 2.13, Dynamo and Inductor: 4.5 CPU-seconds, and 3.8 without it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _quietly(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception as problem:  # a failing hook must not fail the target
        from ..core.shared.contract import events
        from .record import journal

        journal.write(
            events.AgentProblem(hook=getattr(hook, "__name__", "hook"), problem=repr(problem))
        )
