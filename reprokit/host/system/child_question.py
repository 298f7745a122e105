"""Run a short command and return its output, within a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from pathlib import Path

from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.host.system import guardian_client


class NoAnswer(Exception):
    """A question that could not be answered; the message says why."""


_running: set[subprocess.Popen[bytes]] = set()


def ask_child(
    command: list[str],
    timeout_s: float,
    more: dict[str, str] | None = None,
    folders: tuple[Path, ...] = (),
) -> str:
    """The stdout of ``command``; a deadline ends its process group. If reprokit is killed,
    ``folders`` are deleted.
    """
    environ = {
        k: v
        for k, v in os.environ.items()
        if k not in (run_names.RUN_DIR_VARIABLE, "TORCH_TRACE", "TORCH_LOGS")
    }
    run_id = uuid.uuid4().hex
    guardian = guardian_client.watch_run_id(run_id, folders)
    try:
        return _answer_of(
            command, timeout_s, {**environ, **(more or {}), run_names.RUN_ID_VARIABLE: run_id}
        )
    finally:
        if guardian is not None:
            guardian.dismiss()


def _answer_of(command: list[str], timeout_s: float, environ: dict[str, str]) -> str:
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
        raise NoAnswer(f"{command[0]}: {problem.strerror}") from problem
    _running.add(child)
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as problem:
        raise NoAnswer(f"{' '.join(command[:4])} gave nothing in {timeout_s:.0f} s") from problem
    finally:
        _end(child)
        _running.discard(child)
    if child.returncode:
        said = err.decode("utf-8", "replace").strip().splitlines()
        why = (
            cuts.cut_head(said[-1], 300)
            if said
            else f"it ended with status {child.returncode} and said nothing"
        )
        raise NoAnswer(f"{' '.join(command[1:4])}: {why}")
    return out.decode("utf-8", "replace")


def end_children() -> None:
    """End every child that another thread waits for."""
    for child in tuple(_running):
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
