"""Install the agent's hooks when the program imports torch or Triton.

The agent itself imports neither.
"""

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
"""The functions that are called before and after a module is executed."""


class _HookingLoader(Loader):
    """Call the hooks of a module around the real loader's ``exec_module``, the first time."""

    def __init__(self, inner: Loader, name: str, hooks: dict[str, Hooks]) -> None:
        self._inner, self._name, self._hooks = inner, name, hooks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look as if its own loader had loaded it.
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        before, after = self._hooks.pop(self._name, (None, None))
        if before:
            _run_hook(before)
        with _without_gc():
            self._inner.exec_module(module)
        if after:
            _run_hook(after)


class _HookingFinder(MetaPathFinder):
    """Wrap the loaders of four modules.

    The hooks run when a module is executed, because many programs only search for a module
    (``importlib.util.find_spec``).
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
                        spec.loader = _HookingLoader(spec.loader, fullname, self._hooks)
                    return spec
        return None


def wait_for_torch() -> None:
    """Add the finder to ``sys.meta_path``. The program may import torch later, or never."""
    if not any(isinstance(f, _HookingFinder) for f in sys.meta_path):
        sys.meta_path.insert(0, _HookingFinder())


def _before_triton() -> None:
    """Prepare a program that may compile kernels without torch."""
    from .record import process_start

    process_start.journal_process()


def _before_torch() -> None:
    from ..core.shared.contract import run_names
    from .record import process_start

    process_start.journal_process()
    if os.environ.get(run_names.GPU_VARIABLE):
        from . import simulate

        simulate.before_torch()


def _after_torch() -> None:
    """Install the parts that this run needs; the other parts are not copied to the target."""
    from ..core.shared.contract import run_names
    from .torch_hooks import operator_hooks, symbols, torch_trace

    symbols.attempt_hook(torch_trace.separate_handlers)
    symbols.attempt_hook(operator_hooks.note_implementations)
    if os.environ.get(run_names.OVERRIDES_VARIABLE):
        from .experiments import overrides

        overrides.install_overrides()
    if os.environ.get(run_names.RESULTS_VARIABLE):
        from .results import result_recorder

        result_recorder.install_recorder()
    if os.environ.get(run_names.CACHES_VARIABLE):
        from .torch_hooks import cache_hooks

        symbols.DYNAMO_HOOKS.extend(cache_hooks.DYNAMO_HOOKS)
        symbols.INDUCTOR_HOOKS.extend(cache_hooks.HOOKS)
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
def _without_gc() -> Iterator[None]:
    """Disable garbage collection while a module is executed: it frees nothing there.

    The import of torch 2.13, Dynamo and Inductor takes 4.5 CPU seconds with it, and 3.8 without.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run_hook(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception as problem:  # the target must go on
        from ..core.shared.contract import events
        from .record import journal

        journal.write_event(
            events.AgentProblem(hook=getattr(hook, "__name__", "hook"), problem=repr(problem))
        )
