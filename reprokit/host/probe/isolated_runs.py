"""Commands that run a program isolated from the machine, by ``agent/serve/isolation.py``."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.system import compiler_cache, host_log
from reprokit.host.system.child_commands import CommandFailed, own_command, run_for_output

MODULE = "reprokit.agent.serve.isolation"
TRY_S = 30.0


def with_own(isolation: Isolation | None, *folders: Path) -> Isolation | None:
    """Return an isolation in which a program may write to the folders of its run, and share the
    precompiled headers of torch.
    """
    if isolation is None:
        return None
    own = list(folders)
    if headers := compiler_cache.headers_folder():
        with host_log.suppress(OSError):
            headers.mkdir(parents=True, exist_ok=True)
            own.append(headers)
    return dataclasses.replace(isolation, own=[str(path) for path in own])


def isolated_command(
    words: Sequence[str], isolation: Isolation | None, *folders: Path
) -> list[str]:
    """Return the words of a command that runs isolated, and may write only to ``folders``."""
    own = with_own(isolation, *folders)
    if own is None or own.is_open:
        return list(words)
    python, *start = own_command(MODULE, json.dumps(to_json(own)), *words)
    # the agent is on PYTHONPATH for the program, and not for the process that isolates it
    return [python, "-E", *start]


def alone(isolation: Isolation | None, folder: Path) -> Isolation | None:
    """Return an isolation in which a program runs in ``folder``, away from its other files and from
    those of the user's home folder, which no reader of a repro has.
    """
    here = str(folder)
    return isolation and dataclasses.replace(isolation, cwd=here, path="", home=here)


def variables_of(isolation: Isolation | None) -> dict[str, str]:
    """Return the variables of a process that is not isolated, because the user agreed to that."""
    if isolation is None or not isolation.is_open or not isolation.home:
        return {}
    return {"HOME": isolation.home}


@functools.cache
def why_not_isolated() -> str:
    """Return why this machine cannot isolate a program; empty where it can."""
    with tempfile.TemporaryDirectory(prefix="reprokit-") as folder:
        command = isolated_command(["true"], Isolation(cwd=folder), Path(folder))
        try:
            run_for_output(command, TRY_S)
        except CommandFailed as problem:
            return str(problem).partition(f"{MODULE}: ")[2] or str(problem)
    return ""
