"""How the sizes of a target are said on a command line: by an option of their own, or by ``--set
NAME=VALUE``.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterable
from typing import Any

from .errors import BadInput

OWN_OPTION = ("layers", "batch_size", "sequence_length", "dtype")
"""Knobs with an option of their own; all others are set with ``--set``."""


def option_name(name: str) -> str:
    """How the command line sets this knob."""
    return "--" + name.replace("_", "-") if name in OWN_OPTION else f"--set {name}"


def option_words(name: str, value: Any) -> list[str]:
    """The words of the command line that set this knob to this value."""
    if name in OWN_OPTION:
        return [option_name(name), str(value)]
    text = json.dumps(value)
    if isinstance(value, str) and _value(value) == value:
        text = value
    return ["--set", f"{name}={text}"]


def read_options(settings: Iterable[str]) -> dict[str, Any]:
    """Read the words behind each ``--set``; raises BadInput for what is not NAME=VALUE."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not text or not all(part.isidentifier() for part in name.split(".")):
            raise BadInput(f"--set {setting}: write NAME=VALUE, such as --set hidden_size=64")
        if name in OWN_OPTION:
            raise BadInput(f"--set {setting}: {name} has an option of its own, {option_name(name)}")
        if name in found:
            raise BadInput(f"--set {setting}: {name} is set twice")
        found[name] = _value(text)
    return found


def check_options(name: str, given: dict[str, Any], usual: dict[str, Any]) -> None:
    """Refuse what the model ``name`` with the knobs ``usual`` does not have, or what is no size."""
    for knob, value in given.items():
        if knob not in usual:
            hint = nearest_names(knob, usual) if knob not in OWN_OPTION else ""
            raise BadInput(
                f"{name} has no {knob.replace('_', ' ')}, so {option_name(knob)} cannot be used"
                f" with it; {hint}it has {', '.join(usual)}"
            )
        if knob != "dtype" and (type(value) is not int or value < 1):
            raise BadInput(f"--set {knob}={value}: {name} takes an integer above 0 there")


def _value(text: str) -> Any:
    """A JSON or Python literal, or else the text itself."""
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
            json.dumps(value)
            return value
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def nearest_names(name: str, known: Iterable[str]) -> str:
    """``did you mean A or B? `` for a name that is none of the known; empty when nothing is
    near.
    """
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(found)}? " if found else ""


def is_like(value: Any, usual: Any) -> bool:
    """``value`` may stand where ``usual`` stood: the same type, an integer for a float, a list with
    one for each layer.
    """
    if usual is None or value is None:
        return True
    if isinstance(value, (list, tuple)) and not isinstance(usual, (list, tuple, str, dict)):
        return all(is_like(one, usual) for one in value)
    if isinstance(usual, bool) or isinstance(value, bool):
        return isinstance(usual, bool) and isinstance(value, bool)
    if isinstance(usual, float):
        return isinstance(value, (int, float))
    if isinstance(usual, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(usual))
