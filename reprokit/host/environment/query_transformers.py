"""Query the transformers of the target's interpreter: its model types, and the knobs of one."""

from __future__ import annotations

import json
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.environment.agent_queries import query_agent
from reprokit.host.request.target import Target
from reprokit.host.system.child_commands import CommandFailed

QUERY_TIMEOUT_S = 180.0
"""The first import of transformers takes almost a minute on a loaded machine."""


def query_transformers(python: str, target: Target) -> dict[str, Any]:
    """Return the description of an ``hf:`` target, or of all model types if it has no name.

    Raises BadInput with the reason if that fails.
    """
    spec = json.dumps({"place": target.place, "name": target.name})
    try:
        answer = query_agent(python, ["models", spec], QUERY_TIMEOUT_S)
    except CommandFailed as problem:
        raise BadInput(f"cannot query the transformers of {python}: {problem}") from problem
    if answer.get("refused"):
        raise BadInput(str(answer["refused"]))
    return dict(answer)
