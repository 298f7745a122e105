"""Find a factory, call it, and check its result.

A factory returns ``(model, args)``, ``(model, args, kwargs)`` or a dict with the keys ``model``,
``calls``, ``compile``, ``train`` and ``entry``, of which only ``model`` is required.
"""

from __future__ import annotations

import functools
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
from ...core.shared.source import entry_programs


@dataclass
class BuiltTarget:
    """A model or function, and the calls of it."""

    model: Callable[..., Any]
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
    compile: dict[str, Any] = field(default_factory=dict)
    train: bool = False
    entry: str = ""
    """How the compiler is entered; empty for the default."""
    form: str = "dict"
    """The form of the factory's result: ``dict``, ``args``, ``arg`` (one argument that is not a
    tuple) or ``args, kwargs``.
    """


def find_factory(kind: str, place: str, name: str) -> Callable[..., Any]:
    """Import the factory ``name`` from ``place``, whose ``kind`` is ``file`` or ``module``.

    Raises BadTarget if the import fails, and NoSuchTarget if there is no such module or factory.
    """
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
        raise BadTarget(f"importing {place} failed: {_describe_problem(problem)}") from problem
    factory = getattr(module, name, None)
    if factory is None:
        names = [
            n
            for n, v in vars(module).items()
            if callable(v)
            and not n.startswith("_")
            and getattr(v, "__module__", None) == module.__name__
        ]
        raise NoSuchTarget(
            f"{place} has no {name!r}"
            + (f"; it has {', '.join(sorted(names)[:8])}" if names else "")
        )
    if not callable(factory):
        raise BadTarget(
            f"{where} is {_type_text(factory)}, not a function that returns (model, args)"
        )
    return factory  # type: ignore[no-any-return]


@functools.cache
def _import_file(path: str) -> ModuleType:
    """Import a file with its folder on ``sys.path``, as ``python FILE`` does.

    A second call returns the same module, which has the code that Dynamo has compiled. The module
    is added to ``sys.modules``, because Dynamo needs it there.
    """
    path = os.path.abspath(path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    if not name.isidentifier() or not _is_free_name(name, path):
        name = "target_file"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_free_name(name: str, path: str) -> bool:
    """Whether a module of this name cannot shadow a module such as ``torch`` or ``json``."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return True
    return bool(spec.origin) and os.path.samefile(str(spec.origin), path)


def call_factory(factory: Callable[..., Any], where: str, knobs: dict[str, Any]) -> BuiltTarget:
    """Call ``factory`` with ``knobs``, and check its result.

    Raises BadTarget if the factory does not accept a knob, fails, or returns something else.
    """
    try:
        accepted = set(inspect.signature(factory).parameters)
        accepts_any = any(
            p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values()
        )
    except (TypeError, ValueError):
        accepted, accepts_any = set(), False
    extra = [k for k in knobs if k not in accepted and not accepts_any]
    if extra:
        flags = ", ".join(knobs_.option_name(k) for k in extra)
        raise BadTarget(f"{where} takes no {' or '.join(extra)}, so {flags} cannot be used with it")
    try:
        result = factory(**knobs)
    except SystemExit as left:
        raise BadTarget(
            f"{where} called sys.exit({left.code!r}) instead of returning (model, args)"
        ) from left
    except Exception as problem:
        if is_out_of_memory(problem):
            raise  # it has a verdict of its own, and is not a mistake in the factory
        raise BadTarget(f"the factory {where} failed: {_describe_problem(problem)}") from problem
    return read_factory_result(result, where)


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error says that there is not enough memory."""
    text = str(problem)
    return (
        isinstance(problem, MemoryError)
        or "can't allocate memory" in text
        or "out of memory" in text
    )


def read_factory_result(result: object, where: str) -> BuiltTarget:
    """Return the target that a factory's result describes; raises BadTarget for any other form."""
    if isinstance(result, dict):
        known = {"model", "calls", "compile", "train", "entry"}
        if unknown := sorted(set(map(str, result)) - known):
            raise BadTarget(
                f"{where} returned a dict with the unknown keys {', '.join(unknown)}; its keys"
                " may be model, calls, compile, train, entry"
            )
        calls = result.get("calls", [((), {})])
        if not isinstance(calls, (list, tuple)) or not all(
            isinstance(c, (list, tuple))
            and len(c) == 2
            and isinstance(c[0], (list, tuple))
            and isinstance(c[1], dict)
            for c in calls
        ):
            raise BadTarget(f'{where} returned "calls" that is not a list of (args, kwargs)')
        options = result.get("compile", {})
        if not isinstance(options, dict):
            raise BadTarget(
                f'{where} returned "compile" that is {_type_text(options)}, not a dict of arguments'
                " for torch.compile"
            )
        entry = result.get("entry", "")
        if entry and entry not in entry_programs.ENTRIES:
            raise BadTarget(
                f'{where} returned "entry" that is {entry!r}; use one of'
                f" {', '.join(entry_programs.ENTRIES)}"
            )
        model: Any = result.get("model")
        target = BuiltTarget(
            model,
            [(tuple(a), dict(k)) for a, k in calls],
            dict(options),
            bool(result.get("train", False)),
            entry,
        )
    elif isinstance(result, tuple) and len(result) in (2, 3):
        kwargs = result[2] if len(result) == 3 else {}
        args = result[1] if isinstance(result[1], (list, tuple)) else (result[1],)
        if not isinstance(kwargs, dict):
            raise BadTarget(f"{where} returned {_type_text(kwargs)} where kwargs, a dict, belongs")
        form = "args, kwargs" if len(result) == 3 else "args" if args is result[1] else "arg"
        target = BuiltTarget(result[0], [(tuple(args), dict(kwargs))], form=form)
    else:
        text = f"a tuple of {len(result)}" if isinstance(result, tuple) else _type_text(result)
        raise BadTarget(
            f"{where} returned {text}; a factory returns (model, args), (model, args, kwargs) or a"
            " dict with 'model'"
        )
    if not callable(target.model):
        raise BadTarget(
            f"{where} returned a model that is {_type_text(target.model)}, which cannot be called"
        )
    return target


def _describe_problem(problem: BaseException) -> str:
    rows = traceback.extract_tb(problem.__traceback__)
    line = f" (line {rows[-1].lineno} of {os.path.basename(rows[-1].filename)})" if rows else ""
    text = cuts.cut_head(" ".join(str(problem).split()), 300)
    return f"{type(problem).__name__}: {text}{line}" if text else f"{type(problem).__name__}{line}"


def _type_text(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
