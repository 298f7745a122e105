"""Build the configuration of an ``hf:`` target: a default or a file, with the user's changes.

Transformers is imported in offline mode, and only in the target's interpreter.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ....core.shared import cuts
from ....core.shared import target_options as core_knobs
from ....core.shared.errors import BadTarget, NoSuchTarget

LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers num_decoder_layers num_encoder_layers"
    " encoder_layers decoder_layers depth depths n_blocks num_blocks"
).split()
"""The names of fields that count layers."""
INPUT_KNOBS = ("layers", "batch_size", "sequence_length", "dtype")
"""Knobs that are not fields of a configuration."""
UNSHOWN = frozenset(
    "transformers_version id2label label2id _name_or_path model_type architectures dtype"
    " torch_dtype problem_type return_dict output_hidden_states output_attentions"
    " chunk_size_feed_forward".split()
)
"""Keys of a configuration that do not change the size of the model."""


def load_transformers() -> Any:
    """Import transformers in offline mode; raises BadTarget if it cannot be imported."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        library = importlib.import_module("transformers")
        importlib.import_module("transformers.models.auto.modeling_auto")
    except ImportError as problem:
        has_none = isinstance(problem, ModuleNotFoundError) and problem.name == "transformers"
        why = "has no transformers" if has_none else f"cannot import transformers ({problem})"
        raise BadTarget(
            f"{sys.executable} {why}; install it there, or name another interpreter with --python"
        ) from problem
    return library


def make_configuration(
    library: Any, place: str, name: str, knobs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the configuration of a type or a file, with ``knobs``, and its changed fields.

    Raises BadTarget for a file or a knob that cannot be used.
    """
    base = _read_file(place) if place else {}
    name = str(base.get("model_type") or name)
    if name not in library.CONFIG_MAPPING:
        where = f"{place}: " if place else ""
        raise NoSuchTarget(
            f"{where}transformers {library.__version__} of {sys.executable} has no model type"
            f" {name!r}; {core_knobs.nearest_names(name, library.CONFIG_MAPPING.keys())}reprokit"
            " models hf: lists them all"
        )
    config_class = library.CONFIG_MAPPING[name]
    default = build_configuration(config_class, base, name)
    changed = dict(base)
    fields = {n: v for n, v in knobs.items() if n not in INPUT_KNOBS}
    for path, value in _layer_changes(default, name, knobs.get("layers")):
        _set_field(changed, default, path, value, [n.split(".") for n in fields])
    for knob, value in fields.items():
        path = _find_field(default, name, knob)
        old = _get_field(default, path)
        if not core_knobs.can_replace_value(value, old):
            raise BadTarget(
                f"--set {knob}={json.dumps(value)}: {name} has {json.dumps(old, default=str)}"
                f" there, which is {_type_text(old)}"
            )
        _set_field(changed, default, path, value, [])
    config = build_configuration(config_class, changed, name) if changed != base else default
    if not any(n.split(".")[-1] == "use_cache" for n in fields):
        # the target is one forward pass, not the first step of a generation
        for _, part in parts_of(config):
            if getattr(part, "use_cache", None):
                part.use_cache = False
    return config, changed


def parts_of(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a configuration and those inside it, such as ``text_config``, with their paths."""
    yield path, config
    for key, value in vars(config).items():
        if hasattr(value, "model_type") and hasattr(value, "to_dict") and not key.startswith("_"):
            yield from parts_of(value, (*path, key))


def layer_fields(config: Any) -> dict[str, Any]:
    """Return the fields that ``--layers`` sets, with their values."""
    return {
        ".".join((*path, n)): value
        for path, part in parts_of(config)
        for n in LAYERS
        if _is_count(value := fields_of(part).get(n))
    }


def fields_of(config: Any) -> dict[str, Any]:
    """Return the fields of one configuration, without the configurations inside it."""
    inside = {path[0] for path, _ in parts_of(config) if path}
    return {k: v for k, v in config.to_dict().items() if k not in UNSHOWN and k not in inside}


def _is_count(value: Any) -> bool:
    return type(value) is int or (
        isinstance(value, (list, tuple)) and bool(value) and all(type(v) is int for v in value)
    )


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
    except (OSError, ValueError) as problem:
        raise BadTarget(f"{path} is not a configuration: {problem}") from problem
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise BadTarget(f'{path} is not a configuration of transformers: it has no "model_type"')
    return fields


def build_configuration(config_class: Any, fields: Mapping[str, Any], name: str) -> Any:
    """Build a configuration from ``fields``; raises BadTarget if the library refuses them."""
    try:
        return config_class.from_dict(dict(fields)) if fields else config_class()
    except Exception as problem:
        raise BadTarget(
            f"the configuration of {name} cannot be built: {describe_error(problem)}"
        ) from problem


def describe_error(problem: BaseException) -> str:
    """Return an error of the library as one line."""
    text = cuts.cut_head(" ".join(str(problem).split()), 300)
    if "offline" in text.lower() or type(problem).__name__ in (
        "LocalEntryNotFoundError",
        "OfflineModeIsEnabled",
    ):
        return (
            "it needs a file from the network, which reprokit never uses"
            f" ({type(problem).__name__}: {cuts.cut_head(text, 120)})"
        )
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _layer_changes(
    default: Any, name: str, count: int | None
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if count is None:
        return
    fields = layer_fields(default)
    if not fields:
        raise BadTarget(
            f"the configuration of {name} has no field for the number of layers, so --layers cannot"
            " be used with it"
        )
    for key, old in fields.items():
        yield tuple(key.split(".")), count if type(old) is int else [count] * len(old)


def _find_field(default: Any, name: str, knob: str) -> tuple[str, ...]:
    """Return the path of a field: its dotted name, or that of the only part that has it."""
    path = tuple(knob.split("."))
    if _has_field(default, path):
        return path
    inner = [(*at, *path) for at, part in parts_of(default) if at and _has_field(part, path)]
    if len(inner) == 1:
        return inner[0]
    known = [
        ".".join((*at, n))
        for at, part in parts_of(default)
        for n in (*fields_of(part), *part.attribute_map)
    ]
    if inner:
        hint = f"it is in {' and in '.join('.'.join(p) for p in inner)}; name one"
    else:
        hint = f"{core_knobs.nearest_names(knob, known)}reprokit models hf:{name} lists them"
    raise BadTarget(f"the configuration of {name} has no {knob!r}; {hint}")


def _has_field(config: Any, path: tuple[str, ...]) -> bool:
    known = {**config.to_dict(), **config.attribute_map}
    if len(path) == 1:
        return path[0] in known
    inner = getattr(config, path[0], None)
    if isinstance(inner, dict):
        return len(path) == 2 and path[1] in inner
    return path[0] in known and hasattr(inner, "to_dict") and _has_field(inner, path[1:])


def _get_field(config: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        config = config[key] if isinstance(config, dict) else getattr(config, key, None)
    return config.to_dict() if hasattr(config, "to_dict") else config


def _set_field(
    fields: dict[str, Any], default: Any, path: tuple[str, ...], value: Any, kept: list[list[str]]
) -> None:
    """Set one field in ``fields``, and shorten the lists that have one entry for each layer.

    ``default`` is the configuration without changes, and ``kept`` the paths of lists that are not
    shortened.
    """
    for key in path[:-1]:
        default = getattr(default, key, None) if not isinstance(default, dict) else default[key]
        if not isinstance(fields.get(key), dict):
            fields[key] = dict(default) if isinstance(default, dict) else _changed_fields(default)
        fields = fields[key]
    key = path[-1]
    if not isinstance(default, dict):
        key = default.attribute_map.get(key, key)
        old = _get_field(default, (key,))
        if key in LAYERS and type(old) is int and type(value) is int and value < old:
            for name, entry in fields.items():
                if isinstance(entry, list) and len(entry) == old and [*path[:-1], name] not in kept:
                    fields[name] = entry[:value]
    fields[key] = value


def _changed_fields(config: Any) -> dict[str, Any]:
    """Return the fields that differ from the default of the configuration's class."""
    fields = config.to_dict()
    try:
        default = type(config)().to_dict()
    except Exception:  # a class without defaults
        default = {}
    return {
        k: v for k, v in fields.items() if k == "model_type" or k not in default or default[k] != v
    }


def _type_text(value: object) -> str:
    names = {
        bool: "true or false",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), type(value).__name__)
