"""Find a factory, call it, and check that it gives what a target needs.

A factory returns ``(model, args)``, ``(model, args, kwargs)`` or a dict ``{"model", "calls",
"compile", "train"}`` of which all but ``model`` are optional.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ...core.shared import cuts
from ...core.shared import target_options as knobs_
from ...core.shared.errors import BadTarget, NoSuchTarget


@dataclass
class BuiltTarget:
    """A model or function, ready to be compiled and called."""

    model: Callable[..., Any]
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
    compile: dict[str, Any] = field(default_factory=dict)
    train: bool = False
    form: str = "dict"
    """What the factory returned: ``dict``, ``args``, ``arg`` (a single one that is no tuple) or
    ``args, kwargs``.
    """


def find_factory(kind: str, place: str, name: str) -> Callable[..., Any]:
    """Import the factory ``name`` of a ``file`` or a ``module``."""
    where = f"{place}:{name}"
    try:
        module = _import_file(place) if kind == "file" else importlib.import_module(place)
    except SystemExit as left:
        raise BadTarget(
            f"{where}: importing it called sys.exit({left.code!r}); guard that with if __name__ =="
            " '__main__'"
        ) from left
    except BaseException as problem:
        if (
            isinstance(problem, ModuleNotFoundError)
            and kind == "module"
            and problem.name
            and place.startswith(problem.name)
        ):
            raise NoSuchTarget(
                f"there is no module {problem.name!r} that {sys.executable} can import; check the"
                " name, or PYTHONPATH"
            ) from None
        raise BadTarget(f"importing {place} failed: {_say(problem, place)}") from problem
    factory = getattr(module, name, None)
    if factory is None:
        near = [
            n
            for n, v in vars(module).items()
            if callable(v)
            and not n.startswith("_")
            and getattr(v, "__module__", None) == module.__name__
        ]
        raise NoSuchTarget(
            f"{place} has no {name!r}" + (f"; it has {', '.join(sorted(near)[:8])}" if near else "")
        )
    if not callable(factory):
        raise BadTarget(f"{where} is {_a(factory)}, not a function that returns (model, args)")
    return factory  # type: ignore[no-any-return]


def _import_file(path: str) -> ModuleType:
    """Import a file as ``python FILE`` would find its neighbours; Dynamo needs it in
    ``sys.modules``.
    """
    path = os.path.abspath(path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    if not name.isidentifier() or (
        importlib.util.find_spec(name) is not None and name not in _neighbours(path)
    ):
        name = "target_file"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _neighbours(path: str) -> set[str]:
    """Names that the file's own folder gives, so that a file never shadows ``torch`` or
    ``json``.
    """
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.find_spec(name)
    return (
        {name}
        if spec is not None and spec.origin and os.path.samefile(spec.origin, path)
        else set()
    )


def call_factory(factory: Callable[..., Any], where: str, knobs: dict[str, Any]) -> BuiltTarget:
    """Call ``factory`` with the knobs that it takes and check what comes back."""
    try:
        taken = set(inspect.signature(factory).parameters)
        has_any = any(
            p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values()
        )
    except (TypeError, ValueError):
        taken, has_any = set(), False
    extra = [k for k in knobs if k not in taken and not has_any]
    if extra:
        flags = ", ".join(knobs_.option_name(k) for k in extra)
        raise BadTarget(f"{where} takes no {' or '.join(extra)}, so {flags} cannot be used with it")
    try:
        made = factory(**knobs)
    except SystemExit as left:
        raise BadTarget(
            f"{where} called sys.exit({left.code!r}) instead of returning (model, args)"
        ) from left
    except Exception as problem:
        if is_out_of_memory(problem):
            raise  # a verdict, not a mistake in the factory
        raise BadTarget(f"the factory {where} failed: {_say(problem, where)}") from problem
    return check_target(made, where)


def is_out_of_memory(problem: BaseException) -> bool:
    """True for an error that only means that there is too little memory."""
    text = str(problem)
    return (
        isinstance(problem, MemoryError)
        or "can't allocate memory" in text
        or "out of memory" in text
    )


def check_target(made: Any, where: str) -> BuiltTarget:
    """Read one of the forms that a factory may return."""
    if isinstance(made, dict):
        known = {"model", "calls", "compile", "train"}
        if unknown := sorted(set(map(str, made)) - known):
            raise BadTarget(
                f"{where} returned a dict with the unknown keys {', '.join(unknown)}; known are"
                " model, calls, compile, train"
            )
        calls = made.get("calls", [((), {})])
        if not isinstance(calls, (list, tuple)) or not all(
            isinstance(c, (list, tuple))
            and len(c) == 2
            and isinstance(c[0], (list, tuple))
            and isinstance(c[1], dict)
            for c in calls
        ):
            raise BadTarget(f'{where} returned "calls" that is not a list of (args, kwargs)')
        options = made.get("compile", {})
        if not isinstance(options, dict):
            raise BadTarget(
                f'{where} returned "compile" that is {_a(options)}, not a dict of arguments for'
                " torch.compile"
            )
        model: Any = made.get("model")
        target = BuiltTarget(
            model,
            [(tuple(a), dict(k)) for a, k in calls],
            dict(options),
            bool(made.get("train", False)),
        )
    elif isinstance(made, tuple) and len(made) in (2, 3):
        kwargs = made[2] if len(made) == 3 else {}
        args = made[1] if isinstance(made[1], (list, tuple)) else (made[1],)
        if not isinstance(kwargs, dict):
            raise BadTarget(f"{where} returned {_a(kwargs)} where kwargs, a dict, belongs")
        form = "args, kwargs" if len(made) == 3 else "args" if args is made[1] else "arg"
        target = BuiltTarget(made[0], [(tuple(args), dict(kwargs))], form=form)
    else:
        said = (
            f"a tuple of {len(made)}"
            if isinstance(made, tuple)
            else _a(made)
            if made is not None
            else "None"
        )
        raise BadTarget(
            f"{where} returned {said}; a factory returns (model, args), (model, args, kwargs) or a"
            " dict with 'model'"
        )
    if not callable(target.model):
        raise BadTarget(
            f"{where} returned a model that is {_a(target.model)}, which cannot be called"
        )
    return target


def _say(problem: BaseException, where: str) -> str:
    rows = traceback.extract_tb(problem.__traceback__)
    line = f" (line {rows[-1].lineno} of {os.path.basename(rows[-1].filename)})" if rows else ""
    text = cuts.cut_head(" ".join(str(problem).split()), 300)
    return f"{type(problem).__name__}: {text}{line}" if text else f"{type(problem).__name__}{line}"


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
