"""Describe the settings of a compile as Python text: backend, options, configuration, grad mode.

A function among the settings, such as a custom pass or a custom backend, is described by its source
text and the definitions that the text uses.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ...core.shared import cuts
from ...core.shared.contract import events
from . import collectives, journal, program_code
from .definitions.definition_writer import DefinitionWriter

CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
NOT_THE_COMPILERS = frozenset(
    {"repro_after", "repro_level", "compile_threads", "worker_start_method", "debug_dir_root"}
)
"""Keys that change how a compile runs, but not its result."""
OWN_KEYS: set[str] = set()
"""Keys that the agent itself changed in this process."""


_OWN_OPTIONS = re.compile(
    r"aot_inductor\.(package|serialized_\w+|output_path|allow_stack_allocation)"
)
"""Options that AOTInductor adds itself."""


class ChangedConfig(NamedTuple):
    """A compiler setting whose value is not torch's default."""

    module: str
    key: str
    value: Any
    default: Any


class CompileSettings(TypedDict, total=False):
    """The settings of one compile, as JSON values."""

    entry: str
    """How the compiler was entered; empty for torch.compile."""
    backend: str | None
    """An expression; None for Inductor, or if the backend has no text."""
    options: dict[str, str]
    dynamic: bool | None
    configs: list[list[str]]
    """Each as [module, key, expression]."""
    sources: list[str]
    """Definitions that the expressions use."""
    left_out: list[str]
    """Settings that have no text, each with the reason."""
    grad: bool
    autocast: list[list[str]]
    """Each as [device type, dtype]."""
    default_dtype: str
    rank: int
    world_size: int


class _Values:
    """Write values as Python text, and collect the definitions that the text uses."""

    def __init__(self, base: _Values | None = None) -> None:
        self._writer: DefinitionWriter = base._writer if base else DefinitionWriter()
        self._needed: set[str] = set(base._needed) if base else set()
        self.left_out: list[str] = list(base.left_out) if base else []

    def write_value(self, name: str, value: Any) -> str | None:
        """Return the text of ``value``; add it to ``left_out`` and return None if it has none."""
        try:
            with self._writer.collect() as needed:
                text = self._writer.expression(value)
        except Exception as problem:  # a user's object may raise anything when it is inspected
            self.left_out.append(f"{name}: {problem}")
            return None
        self._needed |= needed
        return text

    def sources(self) -> list[str]:
        """Return the definitions that the written values use."""
        return self._writer.rows_for(self._needed)


_config_values, _configs = _Values(), list[list[str]]()
_journaled: dict[int, dict[str, dict[str, str]]] = {}
"""The last configuration that was written to the journal, by process id."""


def describe_settings(
    compiler_fn: Callable[..., Any] | None,
    entry: str = "",
    inductor_options: Mapping[str, Any] | None = None,
) -> CompileSettings:
    """Return the settings of the compile that calls the backend ``compiler_fn``.

    A compile that Dynamo did not start has no such backend, but an ``entry`` and options.
    """
    import torch

    settings: CompileSettings = {"backend": None, "options": {}, "dynamic": None}
    values = _Values(_config_values)
    wrapper = getattr(compiler_fn, "_torchdynamo_orig_backend", compiler_fn)
    settings["dynamic"] = getattr(wrapper, "dynamic", None)
    name = getattr(wrapper, "compiler_name", None)
    function = getattr(wrapper, "compiler_fn", compiler_fn)
    entry = entry or getattr(function, "reprokit_entry", "")
    options = (getattr(wrapper, "config", None) or {}) if name == "inductor" else {}
    if entry:
        settings["entry"], name = entry, "inductor"
        own = inductor_options or {}
        options = {key: value for key, value in own.items() if not _OWN_OPTIONS.fullmatch(key)}
    if compiler_fn is not None:
        program_code.note_own_code(None if name == "inductor" else function, options)
    if name == "inductor":
        for key, value in options.items():
            if (text := values.write_value(key, value)) is not None:
                settings["options"][str(key)] = text
    elif isinstance(name, str) and _is_registered(name):
        settings["backend"] = repr(name)
    elif name != "inductor":
        settings["backend"] = values.write_value("backend", function)
    settings["configs"] = _configs
    settings["left_out"] = values.left_out
    settings["sources"] = values.sources()
    settings["grad"] = torch.is_grad_enabled()
    settings["autocast"] = [
        [device, str(torch.get_autocast_dtype(device))]
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    ]
    settings["default_dtype"] = str(torch.get_default_dtype())
    if (dist := collectives.distributed_module()) is not None:
        settings["rank"], settings["world_size"] = dist.get_rank(), dist.get_world_size()
    return settings


def note_configs(modules: Sequence[str] = CONFIGS, left_out: Collection[str] = frozenset()) -> None:
    """Note the configuration that is not torch's default.

    The caller runs it at the start of a compile, before Dynamo patches the configuration. A
    configuration that differs from that of the last compile in this process is journaled.
    ``modules`` are those that this compile does not patch before, and ``left_out`` are keys that it
    patches.
    """
    global _config_values, _configs
    changed = [config for config in changed_configs(modules) if config.key not in left_out]
    texts = config_texts(changed)
    if _journaled.get(os.getpid()) != texts:
        _journaled[os.getpid()] = texts
        journal.write_event(events.ConfigChanged(changed=texts))
    _config_values, _configs = _Values(), []
    for module, key, value, default in changed:
        is_put_back = _repr(value) == _repr(default)
        if (
            key not in NOT_THE_COMPILERS | OWN_KEYS
            and not is_put_back
            and (text := _config_values.write_value(key, value)) is not None
        ):
            _configs.append([module, key, text])


def changed_configs(modules: Sequence[str] = CONFIGS) -> list[ChangedConfig]:
    """Return the compiler settings of ``modules`` that are not torch's defaults."""
    changed: list[ChangedConfig] = []
    for module in modules:
        config: Any = sys.modules.get(module)
        for key in getattr(config, "_config", {}) if config is not None else ():
            try:
                # ask this before the value is read: deprecated keys warn then
                if not config._is_default(key):
                    default = getattr(config._config[key], "default", None)
                    changed.append(ChangedConfig(module, key, getattr(config, key), default))
            # deprecated and forward-looking keys may raise when they are read
            except Exception as problem:
                changed.append(ChangedConfig(module, key, problem, None))
    return changed


def config_texts(changed: list[ChangedConfig]) -> dict[str, dict[str, str]]:
    """Return the settings as module -> key -> value, as text of at most 500 characters."""
    texts: dict[str, dict[str, str]] = {}
    for module, key, value, _ in changed:
        texts.setdefault(module, {})[key] = cuts.cut_head(_repr(value), 500)
    return texts


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as problem:
        return f"<unreadable: {problem!r}>"


def _is_registered(name: str) -> bool:
    from torch._dynamo.backends import registry

    known = getattr(registry, "_COMPILER_FNS", {}), getattr(registry, "_BACKENDS", {})
    return any(name in names for names in known)
