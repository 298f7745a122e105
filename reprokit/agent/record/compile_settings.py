"""What a compile was asked with, as text that asks for it again: backend, options, changed
configuration, grad mode.

Functions among them (a custom pass, a custom backend) are carried as source text with the names it
uses.
"""

from __future__ import annotations

import ast
import inspect
import math
import os
import sys
import textwrap
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from . import collectives, journal, program_code

CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
NOT_THE_COMPILERS = frozenset(
    {"repro_after", "repro_level", "compile_threads", "worker_start_method", "debug_dir_root"}
)
"""Keys that say how a run was made, not what was compiled."""
OURS: set[str] = set()
"""Keys that this process changed for reprokit's own sake."""
MOST_SOURCE_CHARS = 20_000


class _Unwritable(Exception):
    """A value that has no text of its own."""


class _Writer:
    """Writes values as text and gathers what their text needs, and what has none."""

    def __init__(self, other: _Writer | None = None) -> None:
        self.sources: dict[str, str] = dict(other.sources) if other else {}
        self.left_out: list[str] = list(other.left_out) if other else []

    def text(self, what: str, value: Any) -> str | None:
        try:
            return _text(value, self.sources)
        except Exception as problem:  # the user's own object may do anything when it is looked at
            self.left_out.append(f"{what}: {problem}")
            return None


_noted, _configs = _Writer(), list[list[str]]()
_told: dict[int, dict[str, dict[str, str]]] = {}


def describe_settings(compiler_fn: Any) -> dict[str, Any]:
    """JSON values: ``backend`` (an expression or None), ``options``, ``dynamic``, ``configs`` as
    [module, key, expression], ``sources`` (definitions that the expressions need), ``grad``,
    ``autocast``, ``default_dtype``, ``left_out``.
    """
    import torch

    found: dict[str, Any] = {"backend": None, "options": {}, "dynamic": None}
    write = _Writer(_noted)
    wrapper = getattr(compiler_fn, "_torchdynamo_orig_backend", compiler_fn)
    found["dynamic"] = getattr(wrapper, "dynamic", None)
    name = getattr(wrapper, "compiler_name", None)
    function = getattr(wrapper, "compiler_fn", compiler_fn)
    options = (getattr(wrapper, "config", None) or {}) if name == "inductor" else {}
    if compiler_fn is not None:
        program_code.note_own_code(None if name == "inductor" else function, options)
    if name == "inductor":
        for key, value in options.items():
            if (said := write.text(key, value)) is not None:
                found["options"][str(key)] = said
    elif isinstance(name, str) and _is_registered(name):
        found["backend"] = repr(name)
    elif name != "inductor":
        found["backend"] = write.text("backend", function)
    found.update(configs=_configs, left_out=write.left_out, sources=list(write.sources.values()))
    found["grad"] = torch.is_grad_enabled()
    found["autocast"] = [
        [kind, str(torch.get_autocast_dtype(kind))]
        for kind in ("cpu", "cuda")
        if torch.is_autocast_enabled(kind)
    ]
    found["default_dtype"] = str(torch.get_default_dtype())
    if (dist := collectives.group_of()) is not None:
        found["rank"], found["world_size"] = dist.get_rank(), dist.get_world_size()
    return found


def note_configs() -> None:
    """Note which configuration is not torch's default, before Dynamo patches some of it for the
    time of a compile.

    Journalled as text, when it has changed since the last compile of this process.
    """
    global _noted, _configs
    changed = changed_configs()
    told = as_text(changed)
    if _told.get(os.getpid()) != told:
        _told[os.getpid()] = told
        journal.write(events.ConfigChanged(changed=told))
    _noted, _configs = _Writer(), []
    for module, key, value, default in changed:
        is_put_back = _repr(value) == _repr(default)
        if (
            key not in NOT_THE_COMPILERS | OURS
            and not is_put_back
            and (said := _noted.text(key, value)) is not None
        ):
            _configs.append([module, key, said])


def changed_configs() -> list[tuple[str, str, Any, Any]]:
    """Module, key, value and default of what is not torch's default in its compiler
    configurations.
    """
    found: list[tuple[str, str, Any, Any]] = []
    for module in CONFIGS:
        config: Any = sys.modules.get(module)
        for key in getattr(config, "_config", {}) if config is not None else ():
            try:
                if not config._is_default(key):  # first: deprecated keys warn when they are read
                    found.append(
                        (
                            module,
                            key,
                            getattr(config, key),
                            getattr(config._config[key], "default", None),
                        )
                    )
            except (
                Exception
            ) as problem:  # deprecated and forward-looking keys may refuse to be read
                found.append((module, key, problem, None))
    return found


def as_text(changed: list[tuple[str, str, Any, Any]]) -> dict[str, dict[str, str]]:
    """The same for readers: module -> key -> value."""
    found: dict[str, dict[str, str]] = {}
    for module, key, value, _ in changed:
        found.setdefault(module, {})[key] = cuts.cut_head(_repr(value), 500)
    return found


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as problem:
        return f"<unreadable: {problem!r}>"


def _is_registered(name: str) -> bool:
    from torch._dynamo.backends import registry

    known = getattr(registry, "_COMPILER_FNS", {}), getattr(registry, "_BACKENDS", {})
    return any(name in names for names in known)


def _text(value: Any, sources: dict[str, str]) -> str:
    import torch

    if value is None or type(value) in (
        bool,
        int,
        float,
        str,
    ):  # exactly: an Enum may be an int, too
        return (
            repr(value)
            if not isinstance(value, float) or math.isfinite(value)
            else f'float("{value}")'
        )
    if isinstance(value, (list, tuple, set, frozenset)) and len(value) < 200:
        inner = ", ".join(_text(v, sources) for v in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return (
            f"({inner}{',' if len(value) == 1 else ''})"
            if isinstance(value, tuple)
            else f"{{{inner}}}"
            if value
            else "set()"
        )
    if isinstance(value, dict) and len(value) < 200:
        return (
            "{"
            + ", ".join(f"{_text(k, sources)}: {_text(v, sources)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value) if isinstance(value, torch.dtype) else repr(str(value))
    if inspect.isfunction(value) or inspect.isclass(value):
        return _define(value, sources)
    if (
        type(value).__module__.split(".")[0] != "torch"
        and "__init__" not in vars(type(value))
        and not getattr(value, "__dict__", None)
    ):
        return _define(type(value), sources) + "()"
    raise _Unwritable(f"{type(value).__qualname__} has no text of its own")


def _define(thing: Any, sources: dict[str, str]) -> str:
    """Carry a function or class: an import where it is torch's, else its source and what that
    uses.
    """
    module, name = thing.__module__, thing.__qualname__
    if module.split(".")[0] == "torch" and "<" not in name:
        sources.setdefault(f"{module}.{name}", f"from {module} import {name.split('.')[0]}")
        return str(name)
    if "." in name or "<" in name or getattr(thing, "__closure__", None):
        raise _Unwritable(f"{name} is defined inside another function")
    if name in sources:
        return str(name)
    try:
        source = textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError) as problem:
        raise _Unwritable(f"the source of {name} cannot be read: {problem}") from problem
    if len(source) > MOST_SOURCE_CHARS:
        raise _Unwritable(f"the source of {name} is too long")
    sources[name] = ""  # its place, for functions that call each other
    known = vars(sys.modules[module])
    for used in sorted({n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}):
        if used in known and used != name:  # also base classes, decorators and defaults
            _carry(used, known[used], sources)
    del sources[name]
    sources[name] = source.rstrip()
    return str(name)


def _carry(name: str, value: Any, sources: dict[str, str]) -> None:
    if inspect.ismodule(value):
        whole = value.__name__
        if whole.split(".")[0] not in {"torch", *sys.stdlib_module_names}:
            raise _Unwritable(f"it uses the module {whole}")
        sources[name] = (
            f"import {whole}" if whole.split(".")[0] == name else f"import {whole} as {name}"
        )
    elif (inspect.isfunction(value) or inspect.isclass(value)) and value.__name__ == name:
        _define(value, sources)
    else:
        sources[name] = f"{name} = {_text(value, sources)}"
