"""Ask the transformers of another interpreter what it has: model types, and the knobs of one."""

from __future__ import annotations

import json
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.environment.agent_question import ask_agent
from reprokit.host.request.target import Target
from reprokit.host.system.child_question import NoAnswer

ANSWER_S = 180.0
"""Importing transformers for the first time, on a loaded machine, takes most of a minute."""


def ask_transformers(python: str, target: Target) -> dict[str, Any]:
    """What there is to say of an ``hf:`` target, or of all of them when it has no name; BadInput
    says what is wrong.
    """
    spec = json.dumps({"place": target.place, "name": target.name})
    try:
        told = ask_agent(python, ["models", spec], ANSWER_S)
    except NoAnswer as problem:
        raise BadInput(f"{python} did not say what its transformers has: {problem}") from problem
    if told.get("refused"):
        raise BadInput(str(told["refused"]))
    return dict(told)
