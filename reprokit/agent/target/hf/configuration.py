"""The configuration of an ``hf:`` target: the library's defaults or a file, with the knobs that
were set.

transformers belongs to the target's interpreter; it is imported by name, offline, and never by
anybody else.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from ....core.shared import cuts
from ....core.shared import target_options as core_knobs
from ....core.shared.errors import BadTarget, NoSuchTarget

LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers num_decoder_layers num_encoder_layers"
    " encoder_layers decoder_layers depth depths n_blocks num_blocks"
).split()
"""Fields that count layers, by the names that configurations have for them."""
OF_INPUTS = ("layers", "batch_size", "sequence_length", "dtype")
UNSHOWN = frozenset(
    "transformers_version id2label label2id _name_or_path model_type architectures dtype"
    " torch_dtype problem_type return_dict output_hidden_states output_attentions"
    " chunk_size_feed_forward".split()
)
"""Keys of a configuration that size nothing."""


def load_transformers() -> Any:
    """Import transformers so that it asks the network for nothing."""
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
    """The configuration of a type, or of a file, with the knobs that are its own, and the words
    that it was made from.

    BadTarget says what is wrong.
    """
    base = _read(place) if place else {}
    name = str(base.get("model_type") or name)
    if name not in library.CONFIG_MAPPING:
        where = f"{place}: " if place else ""
        raise NoSuchTarget(
            f"{where}transformers {library.__version__} of {sys.executable} has no model type"
            f" {name!r}; {core_knobs.nearest_names(name, library.CONFIG_MAPPING.keys())}reprokit"
            " models hf: lists them all"
        )
    kind = library.CONFIG_MAPPING[name]
    usual = build_from(kind, base, name)
    changed = dict(base)
    named = {n: v for n, v in knobs.items() if n not in OF_INPUTS}
    for path, value in _layers(usual, name, knobs.get("layers")):
        _put(changed, usual, path, value, [n.split(".") for n in named])
    for knob, value in named.items():
        path = _path(usual, name, knob)
        old = _get(usual, path)
        if not core_knobs.is_like(value, old):
            raise BadTarget(
                f"--set {knob}={json.dumps(value)}: {name} has {json.dumps(old, default=str)}"
                f" there, which is {_a(old)}"
            )
        _put(changed, usual, path, value, [])
    config = build_from(kind, changed, name) if changed != base else usual
    if not any(n.split(".")[-1] == "use_cache" for n in named):
        for _, part in parts_of(
            config
        ):  # the graph is one forward pass, not the first step of a generation
            if getattr(part, "use_cache", None):
                part.use_cache = False
    return config, changed


def parts_of(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A configuration and those inside it, such as ``text_config``."""
    yield path, config
    for key, value in vars(config).items():
        if hasattr(value, "model_type") and hasattr(value, "to_dict") and not key.startswith("_"):
            yield from parts_of(value, (*path, key))


def layer_fields(config: Any) -> dict[str, Any]:
    """Which fields ``--layers`` sets, with their values."""
    return {
        ".".join((*path, n)): value
        for path, part in parts_of(config)
        for n in LAYERS
        if _is_count(value := fields_of(part).get(n))
    }


def fields_of(config: Any) -> dict[str, Any]:
    """The fields of one configuration, without those inside it."""
    inside = {path[0] for path, _ in parts_of(config) if path}
    return {k: v for k, v in config.to_dict().items() if k not in UNSHOWN and k not in inside}


def _is_count(value: Any) -> bool:
    return type(value) is int or (
        isinstance(value, (list, tuple)) and bool(value) and all(type(v) is int for v in value)
    )


def _read(place: str) -> dict[str, Any]:
    try:
        with open(place, encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError) as problem:
        raise BadTarget(f"{place} is no configuration: {problem}") from problem
    if not isinstance(told, dict) or not isinstance(told.get("model_type"), str):
        raise BadTarget(f'{place} is no configuration of transformers: it has no "model_type"')
    return told


def build_from(kind: Any, told: dict[str, Any], name: str) -> Any:
    """Make a configuration of ``kind``; what it refuses is one line."""
    try:
        return kind.from_dict(dict(told)) if told else kind()
    except Exception as problem:
        raise BadTarget(
            f"the configuration of {name} cannot be made: {one_line_of(problem)}"
        ) from problem


def one_line_of(problem: BaseException) -> str:
    """An error of the library in one line; one that wanted the network says that."""
    text = cuts.cut_head(" ".join(str(problem).split()), 300)
    if "offline" in text.lower() or type(problem).__name__ in (
        "LocalEntryNotFoundError",
        "OfflineModeIsEnabled",
    ):
        return (
            "it wants something from the network, which reprokit never asks"
            f" ({type(problem).__name__}: {cuts.cut_head(text, 120)})"
        )
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _layers(usual: Any, name: str, wanted: int | None) -> Iterator[tuple[tuple[str, ...], Any]]:
    if wanted is None:
        return
    found = layer_fields(usual)
    if not found:
        raise BadTarget(
            f"the configuration of {name} counts no layers, so --layers cannot be used with it"
        )
    for words, old in found.items():
        yield tuple(words.split(".")), wanted if type(old) is int else [wanted] * len(old)


def _path(usual: Any, name: str, knob: str) -> tuple[str, ...]:
    """Where in the configuration a knob stands: its dotted name, or the only place below that has
    it.
    """
    path = tuple(knob.split("."))
    if _has(usual, path):
        return path
    below = [(*at, *path) for at, part in parts_of(usual) if at and _has(part, path)]
    if len(below) == 1:
        return below[0]
    known = [
        ".".join((*at, n))
        for at, part in parts_of(usual)
        for n in (*fields_of(part), *part.attribute_map)
    ]
    said = f"it is in {' and in '.join('.'.join(b) for b in below)}; name one" if below else ""
    hint = said or f"{core_knobs.nearest_names(knob, known)}reprokit models hf:{name} lists them"
    raise BadTarget(f"the configuration of {name} has no {knob!r}; {hint}")


def _has(config: Any, path: tuple[str, ...]) -> bool:
    known = {**config.to_dict(), **config.attribute_map}
    if len(path) == 1:
        return path[0] in known
    inner = getattr(config, path[0], None)
    if isinstance(inner, dict):
        return len(path) == 2 and path[1] in inner
    return path[0] in known and hasattr(inner, "to_dict") and _has(inner, path[1:])


def _get(config: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        config = config[key] if isinstance(config, dict) else getattr(config, key, None)
    return config.to_dict() if hasattr(config, "to_dict") else config


def _put(
    told: dict[str, Any], usual: Any, path: tuple[str, ...], value: Any, kept: list[list[str]]
) -> None:
    """Set one field in the words of a configuration; lists that have an entry a layer are cut with
    the layers.
    """
    for key in path[:-1]:
        usual = getattr(usual, key, None) if not isinstance(usual, dict) else usual[key]
        if not isinstance(told.get(key), dict):
            told[key] = dict(usual) if isinstance(usual, dict) else _difference(usual)
        told = told[key]
    key = path[-1]
    if not isinstance(usual, dict):
        key = usual.attribute_map.get(key, key)
        old = _get(usual, (key,))
        if key in LAYERS and type(old) is int and type(value) is int and value < old:
            for name, entry in told.items():
                if isinstance(entry, list) and len(entry) == old and [*path[:-1], name] not in kept:
                    told[name] = entry[:value]
    told[key] = value


def _difference(config: Any) -> dict[str, Any]:
    """What makes a configuration another than the default of its kind; what is derived from its
    sizes is left out.
    """
    told = config.to_dict()
    try:
        usual = type(config)().to_dict()
    except Exception:  # a kind without defaults
        usual = {}
    return {k: v for k, v in told.items() if k == "model_type" or k not in usual or usual[k] != v}


def _a(value: Any) -> str:
    names = {
        bool: "true or false",
        int: "an integer",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), type(value).__name__)
