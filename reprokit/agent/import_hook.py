"""Install the agent's hooks when the program imports torch or Triton.

The agent itself imports neither.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # these imports take 25 ms, which each Python process of a target would pay
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, TypeAlias

    Hooks: TypeAlias = tuple[Callable[[], None] | None, Callable[[], None] | None]
    """The functions that are called before and after a module is executed."""


class _HookingLoader:
    """Call the hooks of a module around the real loader's ``exec_module``, the first time."""

    def __init__(self, inner: Loader, name: str, hooks: dict[str, Hooks]) -> None:
        self._inner, self._name, self._hooks = inner, name, hooks

    def __getattr__(self, name: str) -> Any:
        if name == "_inner" or name.startswith("__"):  # copy asks for them before __init__
            raise AttributeError(name)
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
        # The import of torch 2.13, Dynamo and Inductor takes 4.5 CPU seconds with collection,
        # which frees nothing there, and 3.8 without.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            self._inner.exec_module(module)
        finally:
            if was_enabled:
                gc.enable()
        if after:
            _run_hook(after)


class _HookingFinder:
    """Wrap the loaders of some modules.

    The hooks run when a module is executed, because many programs only search for a module
    (``importlib.util.find_spec``).
    """

    def __init__(self) -> None:
        self.hooks: dict[str, Hooks] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.hooks:
            return None
        for finder in sys.meta_path:  # an editable torch has a finder of its own
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _HookingLoader(spec.loader, fullname, self.hooks)  # type: ignore[assignment]
                    return spec
        return None


def wait_for_torch() -> None:
    """Install the hooks of a capture. The program may import torch later, or never."""
    wait_for_modules(
        {
            "torch": (_before_torch, _after_torch),
            "triton": (_before_triton, None),
            "torch._dynamo": (None, _after_dynamo),
            "torch._inductor.compile_fx": (None, _after_inductor),
        }
    )


def wait_for_modules(hooks: dict[str, Hooks]) -> None:
    """Call the hooks before and after the program executes these modules, once."""
    finder = next((f for f in sys.meta_path if isinstance(f, _HookingFinder)), None)
    if finder is None:
        finder = _HookingFinder()
        sys.meta_path.insert(0, finder)
    for name, of_module in hooks.items():
        finder.hooks.setdefault(name, of_module)


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
    if os.environ.get(run_names.MEASURES_VARIABLE):
        from . import measure_program

        measure_program.install_measurement()
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


def _run_hook(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception as problem:  # the target must go on
        _note_problem(getattr(hook, "__name__", "hook"), problem)


def _note_problem(hook: str, problem: Exception) -> None:
    try:
        from ..core.shared.contract import events
        from .record import journal
    except ImportError:
        return
    journal.write_event(events.AgentProblem(hook=hook, problem=repr(problem)))
