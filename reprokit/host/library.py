"""Ask the transformers of another interpreter what it has: model types, and the knobs of one."""

from __future__ import annotations

import json
from typing import Any

from ..core.records import BadInput
from .environment import NoAnswer, ask_agent
from .target import Target

ANSWER_S = 180.0
"""Importing transformers for the first time, on a loaded machine, takes most of a minute."""


def ask(python: str, target: Target) -> dict[str, Any]:
    """What there is to say of an ``hf:`` target, or of all of them when it has no name; BadInput says what is wrong."""
    spec = json.dumps({"place": target.place, "name": target.name})
    try:
        told = ask_agent(python, ["models", spec], ANSWER_S)
    except NoAnswer as problem:
        raise BadInput(f"{python} did not say what its transformers has: {problem}") from problem
    if told.get("refused"):
        raise BadInput(str(told["refused"]))
    return dict(told)
