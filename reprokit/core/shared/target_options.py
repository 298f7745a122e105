"""The sizes of a target on a command line: each has its own option, or is set with ``--set
NAME=VALUE``.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .errors import BadInput

OWN_OPTION = ("layers", "batch_size", "sequence_length", "dtype")
"""Knobs with their own option; all others are set with ``--set``."""


def option_name(name: str) -> str:
    """Return the option that sets this knob."""
    return "--" + name.replace("_", "-") if name in OWN_OPTION else f"--set {name}"


def option_words(name: str, value: object) -> list[str]:
    """Return the words of the command line that set this knob to this value."""
    if name in OWN_OPTION:
        return [option_name(name), str(value)]
    text = json.dumps(value)
    if isinstance(value, str) and _value(value) == value:
        text = value
    return ["--set", f"{name}={text}"]


def read_options(settings: Iterable[str]) -> dict[str, Any]:
    """Read the argument of each ``--set``; raises BadInput for one that is not NAME=VALUE."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not text or not all(part.isidentifier() for part in name.split(".")):
            raise BadInput(f"--set {setting}: write NAME=VALUE, such as --set hidden_size=64")
        if name in OWN_OPTION:
            raise BadInput(f"--set {setting}: {name} has its own option, {option_name(name)}")
        if name in values:
            raise BadInput(f"--set {setting}: {name} is set twice")
        values[name] = _value(text)
    return values


def check_options(name: str, values: Mapping[str, object], knobs: Collection[str]) -> None:
    """Raise BadInput if the model ``name`` does not have one of the knobs in ``values``, or if a
    value is not a size.
    """
    for knob, value in values.items():
        if knob not in knobs:
            hint = nearest_names(knob, knobs) if knob not in OWN_OPTION else ""
            raise BadInput(
                f"{name} has no {knob.replace('_', ' ')}, so {option_name(knob)} cannot be used"
                f" with it; {hint}it has {', '.join(knobs)}"
            )
        if knob != "dtype" and (type(value) is not int or value < 1):
            raise BadInput(f"--set {knob}={value}: {name} takes an integer above 0 there")


def _value(text: str) -> Any:
    """Return the value of a JSON or Python literal, or the text itself if it is neither."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
            json.dumps(value)
            return value
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean A or B? `` with the known names that are similar to ``name``; empty if
    none is.
    """
    similar = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(similar)}? " if similar else ""


def can_replace_value(value: object, default: object) -> bool:
    """Return whether ``value`` may replace ``default``: it has the same type, or is an integer for
    a float, or a list with one such value for each layer.
    """
    if default is None or value is None:
        return True
    if isinstance(value, (list, tuple)) and not isinstance(default, (list, tuple, str, dict)):
        return all(can_replace_value(item, default) for item in value)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float))
    if isinstance(default, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(default))
