"""Commands of child processes: modules of Python, and short commands whose output is returned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Collection
from pathlib import Path

from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.host.system import guardian_client, host_log

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder of reprokit."""
START_MODULE = "agent/start_module.py"


def agent_command(python: str, agent: Path, module: str, *words: str) -> list[str]:
    """Return a command that runs a module in the target's interpreter ``python``, as ``-m`` does.

    The working directory is not on the path.

    ``agent`` is the folder with the copy of the agent.
    """
    return [python, str(agent / "_reprokit" / START_MODULE), module, *words]


def own_command(module: str, *words: str) -> list[str]:
    """Return a command that runs a module in this interpreter."""
    return [sys.executable, str(PACKAGE / START_MODULE), module, *words]


class CommandFailed(Exception):
    """The command failed or exceeded its deadline; the message says why."""


_running: set[subprocess.Popen[bytes]] = set()


def run_for_output(
    command: list[str],
    timeout_s: float,
    variables: dict[str, str] | None = None,
    folders: tuple[Path, ...] = (),
    statuses: Collection[int] = (0,),
) -> str:
    """Return the stdout of ``command``. Kill its process group after ``timeout_s``.

    ``variables`` are added to the environment. If reprokit is killed, the guardian deletes
    ``folders``. Raises CommandFailed, also for an exit status that is not one of ``statuses``.
    """
    environ = {
        k: v
        for k, v in os.environ.items()
        if k not in (run_names.RUN_DIR_VARIABLE, "TORCH_TRACE", "TORCH_LOGS")
    }
    run_id = uuid.uuid4().hex
    guardian = guardian_client.watch_run_id(run_id, folders)
    try:
        return _communicate(
            command,
            timeout_s,
            {**environ, **(variables or {}), run_names.RUN_ID_VARIABLE: run_id},
            statuses,
        )
    finally:
        if guardian is not None:
            guardian.dismiss()


def _communicate(
    command: list[str], timeout_s: float, environ: dict[str, str], statuses: Collection[int]
) -> str:
    try:
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as problem:
        raise CommandFailed(f"{command[0]}: {problem.strerror}") from problem
    _running.add(child)
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as problem:
        name = " ".join(command[:4])
        raise CommandFailed(f"{name} did not end within {timeout_s:.0f} s") from problem
    finally:
        _end(child)
        _running.discard(child)
    if child.returncode not in statuses:
        errors = err.decode("utf-8", "replace").strip().splitlines()
        reason = (
            cuts.cut_head(errors[-1], 300)
            if errors
            else f"{describe_exit(child.returncode)}, without an error message"
        )
        raise CommandFailed(f"{' '.join(command[1:4])}: {reason}")
    return out.decode("utf-8", "replace")


def end_children() -> None:
    """Kill every command that a thread of this process waits for."""
    for child in tuple(_running):
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    with host_log.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
