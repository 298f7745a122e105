"""Wait, without importing anything of torch, until the program imports it itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _ThenLoader(Loader):
    """A loader that calls ``before`` and ``after`` around the real one's ``exec_module``."""

    def __init__(self, inner: Loader, before: Callable[[], None] | None, after: Callable[[ModuleType], None] | None):
        self._inner, self._before, self._after = inner, before, after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must look as if we had never been between it and its loader.
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        if self._before:
            _quietly(self._before)
        self._inner.exec_module(module)
        if self._after:
            after = self._after
            _quietly(lambda: after(module))


class _Waiter(MetaPathFinder):
    """Watches for three imports, each once, and then leaves ``sys.meta_path``."""

    def __init__(self) -> None:
        self._hooks: dict[str, tuple[Callable[[], None] | None, Callable[[ModuleType], None] | None]] = {
            "torch": (_before_torch, None),
            "torch._dynamo": (None, _after_dynamo),
            "torch._inductor.compile_fx": (None, _after_inductor),
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hooks = self._hooks.pop(fullname, None)
        if hooks is None:
            return None
        if not self._hooks and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenLoader(spec.loader, *hooks)
        return spec


def wait_for_torch() -> None:
    """Install the watch; importing torch later, or never, is the program's choice."""
    if not any(isinstance(f, _Waiter) for f in sys.meta_path):
        sys.meta_path.insert(0, _Waiter())


def _before_torch() -> None:
    from . import process

    process.introduce()


def _after_dynamo(_: ModuleType) -> None:
    from . import instrument

    instrument.watch_dynamo()


def _after_inductor(_: ModuleType) -> None:
    from . import instrument

    instrument.watch_inductor()


def _quietly(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception as problem:  # a failing hook must not fail the target
        from . import journal

        journal.write("agent_problem", hook=getattr(hook, "__name__", "hook"), problem=repr(problem))
