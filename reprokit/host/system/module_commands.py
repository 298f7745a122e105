"""Commands that run a module as ``-m`` does, but without the working directory on the path."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder of reprokit."""
START_MODULE = "agent/start_module.py"


def agent_command(python: str, agent: Path, module: str, *words: str) -> list[str]:
    """Return a command that runs a module in the target's interpreter ``python``.

    ``agent`` is the folder with the copy of the agent.
    """
    return [python, str(agent / "_reprokit" / START_MODULE), module, *words]


def own_command(module: str, *words: str) -> list[str]:
    """Return a command that runs a module in this interpreter."""
    return [sys.executable, str(PACKAGE / START_MODULE), module, *words]
