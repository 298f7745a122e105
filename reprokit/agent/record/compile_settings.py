"""Describe the settings of a compile as Python text: backend, options, configuration, grad mode.

A function among the settings, such as a custom pass or a custom backend, is described by its source
text and the definitions that the text uses.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
PATCHED_BY_TORCH = frozenset(
    {
        "bundled_autograd_cache",
        "comprehensive_padding",
        "fake_tensor_allow_unsafe_data_ptr_access",
        "functionalize_rng_ops",
        "graph_partition",
        "selective_decompose",
        "strict_autograd_cache",
        "unlift_effect_tokens",
    }
)
"""Settings of Inductor and AOTAutograd that torch itself changes during a compile. Whether the user
set them too cannot be seen.
"""
OWN_KEYS: set[str] = set()
"""Keys that the agent itself changed in this process."""


_OWN_OPTIONS = re.compile(
    r"aot_inductor\.(package|serialized_\w+|output_path|allow_stack_allocation)"
)
"""Options that AOTInductor adds itself."""


_NEEDED_FOR_IMPORT = re.compile(
    r"(PATH|HOME|USER|LOGNAME|TMPDIR|LANG|LC_\w+|LD_\w+|PYTHON\w+|VIRTUAL_ENV|CONDA\w*)"
)
"""Environment variables without which torch may not be found or imported."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class ChangedConfig(NamedTuple):
    """A compiler setting whose value is not its default in this process."""

    module: str
    key: str
    value: Any


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
is_probe = False
"""True in a probe, whose journal has no defaults."""


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
    """Note the configuration that the program changed.

    The caller runs it at the start of a compile, before Dynamo patches the configuration. A
    configuration that differs from that of the last compile in this process is journaled; the first
    one is journaled with the defaults. ``modules`` are those that this compile does not patch
    before, and ``left_out`` are keys that it patches.
    """
    global _config_values, _configs
    changed = [
        config
        for config in changed_configs(modules)
        if config.key not in OWN_KEYS and config.key not in left_out
    ]
    texts = config_texts(changed)
    if _journaled.get(os.getpid()) != texts:
        defaults = {} if is_probe or os.getpid() in _journaled else default_texts()
        _journaled[os.getpid()] = texts
        journal.write_event(events.ConfigChanged(changed=texts, defaults=defaults))
    _config_values, _configs = _Values(), []
    for module, key, value in changed:
        if (
            key not in NOT_THE_COMPILERS
            and (text := _config_values.write_value(key, value)) is not None
        ):
            _configs.append([module, key, text])


def changed_configs(modules: Sequence[str] = CONFIGS) -> list[ChangedConfig]:
    """Return the compiler settings of ``modules`` whose values differ from their defaults here.

    ``config.patch`` sets an option to its default again, which is no change.
    """
    changed: list[ChangedConfig] = []
    for module, key, config, entry in _entries(modules):
        try:
            # ask this before the value is read: deprecated keys warn then
            if not config._is_default(key):
                value = getattr(config, key)
                if _repr(value) != _repr(entry.default):
                    changed.append(ChangedConfig(module, key, value))
        # deprecated and forward-looking keys may raise when they are read
        except Exception as problem:
            changed.append(ChangedConfig(module, key, problem))
    return changed


def default_texts() -> dict[str, dict[str, str]]:
    """Return the defaults of all compiler settings as module -> key -> value.

    Torch reads some of them from environment variables when it is imported.
    """
    texts: dict[str, dict[str, str]] = {}
    for module, key, _, entry in _entries(CONFIGS):
        if getattr(entry, "alias", None) is None:
            texts.setdefault(module, {})[key] = _text_of(entry.default)
    return texts


def torch_default_texts() -> dict[str, dict[str, str]]:
    """Return ``default_texts`` of a torch that reads no environment variable of the user.

    A default that depends on the working directory has ``ANY_FOLDER`` in its place. Call it in a
    process of its own, before torch is imported.
    """
    for name in [*os.environ]:
        if not _NEEDED_FOR_IMPORT.fullmatch(name):
            del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="reprokit-") as folder:
        folder = os.path.realpath(folder)
        os.chdir(folder)
        for module in CONFIGS:
            importlib.import_module(module)
        texts = default_texts()
    return {
        module: {key: text.replace(folder, events.ANY_FOLDER) for key, text in rows.items()}
        for module, rows in texts.items()
    }


def _entries(modules: Sequence[str]) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the name of the module, the key, the module and the entry of each setting."""
    for module in modules:
        config: Any = sys.modules.get(module)
        for key, entry in (getattr(config, "_config", None) or {}).items():
            yield module, key, config, entry


def config_texts(changed: list[ChangedConfig]) -> dict[str, dict[str, str]]:
    """Return the settings as module -> key -> value, as text of at most 500 characters."""
    texts: dict[str, dict[str, str]] = {}
    for module, key, value in changed:
        texts.setdefault(module, {})[key] = _text_of(value)
    return texts


def _text_of(value: Any) -> str:
    return cuts.cut_head(_ADDRESS.sub("", _repr(value)), 500)


def _repr(value: Any) -> str:
    try:
        if isinstance(value, (set, frozenset)):  # their order differs from process to process
            return f"{{{', '.join(sorted(map(repr, value)))}}}" if value else repr(value)
        return repr(value)
    except Exception as problem:
        return f"<unreadable: {problem!r}>"


def _is_registered(name: str) -> bool:
    from torch._dynamo.backends import registry

    known = getattr(registry, "_COMPILER_FNS", {}), getattr(registry, "_BACKENDS", {})
    return any(name in names for names in known)
