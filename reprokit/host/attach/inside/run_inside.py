"""Run a program of ours inside a running Python process, which records its graphs or its tasks.

A process that called ``reprokit.watch()`` is asked with a signal. Python 3.14 and newer have a
function for this (PEP 768). Another one gets a pending call.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from reprokit.core.shared import cuts
from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import prepared
from reprokit.host.attach.inside import pending_call, remote_exec
from reprokit.host.attach.inside.injection import CannotRunInside, Injection
from reprokit.host.run import launch
from reprokit.host.system import deletion, files, host_log

POLL_S = 0.05
GRAPHS, TASKS = "live_graphs", "live_tasks"
"""Modules of the agent that a process runs."""

# The program must not raise: an exception would appear in the user's code. It leaves no module, no
# path and no page behind. os.register_at_fork has no inverse, so the agent must not call it.
_PROGRAM = """
import os, sys
folder, run, done = {folder!r}, {run!r}, {done!r}
before, register, writes = set(sys.modules), os.register_at_fork, sys.dont_write_bytecode
said = ""
try:
    os.register_at_fork, sys.dont_write_bytecode = (lambda **_: None), True
    sys.path.insert(0, folder)
    try:
        from _reprokit.agent.record import {module}
        said = str({module}.record_{module}(run))
    finally:
        sys.path.remove(folder)
        os.register_at_fork, sys.dont_write_bytecode = register, writes
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "_reprokit":
                del sys.modules[name]
        sys.path_importer_cache.pop(folder, None)
except BaseException as problem:
    said = repr(problem)
try:
    with open(done + ".part", "w") as file:
        file.write(said)
    os.rename(done + ".part", done)
except OSError:
    pass  # nobody waits for it any more
"""


def describe_way(pid: int) -> str:
    """Return what happens to a process whose graphs are recorded.

    Raises:
        BadInput: nothing can run code in the process.
    """
    if prepared.takes_programs(pid):
        return "its main thread runs code on a signal"
    if remote_exec.is_supported(pid):
        return "its main thread runs code (sys.remote_exec)"
    if way := pending_call.describe_way():
        return way
    raise BadInput("--graphs needs gdb on this processor, and it is not installed: apt install gdb")


def record_inside(
    pid: int,
    run_path: Path,
    deadline_s: float,
    module: str = GRAPHS,
    *,
    ends_wait: bool = False,
) -> int:
    """Record the graphs that a process compiles, or its ``TASKS``, into the run directory, and
    return their number. ``ends_wait`` is for a main thread whose selector waits for events.

    Raises:
        CannotRunInside: the process cannot be changed, or its main thread runs no Python code for
            ``deadline_s``.
    """
    if why := _why_not(pid):
        raise CannotRunInside(why)
    with launch.copied_agent(run_path, frozenset({launch.LIVE})) as agent:
        program, done = agent / "inside.py", agent / "inside.done"
        program.write_text(
            _PROGRAM.format(folder=str(agent), run=str(run_path), done=str(done), module=module)
        )
        injection = _inject(pid, program, ends_wait)
        said = _wait_for(done, deadline_s)
        if said is None:
            injection.cancel()  # the program may still run
            said = _wait_for(done, POLL_S)
        if said is not None:
            injection.remove()
        deletion.delete_path(done, inside=run_path)
    if said is None:
        raise CannotRunInside(
            f"the main thread of process {pid} ran no Python code for {deadline_s:g} s: it is in a"
            " native loop, or it waits"
        )
    if not said.isdigit():
        raise CannotRunInside(
            f"the {module.removeprefix('live_')} could not be written: {cuts.cut_head(said, 300)}"
        )
    return int(said)


def _inject(pid: int, program: Path, ends_wait: bool) -> Injection:
    """Ask a process for the program, in the first way that works."""
    if prepared.takes_programs(pid):
        request = prepared.ProgramRequest(pid)
        try:
            request.start(program)
            return request
        except (OSError, KeyError) as problem:
            host_log.log_ignored(problem)
    if not ends_wait and remote_exec.is_supported(pid):
        remote = remote_exec.RemoteExec(pid)
        try:
            remote.start(program)
            return remote
        except CannotRunInside as problem:  # the process may have turned it off
            if not pending_call.describe_way():
                raise
            host_log.log_ignored(problem)
    call = pending_call.PendingCall(pid)
    call.start(program, ends_wait)
    return call


def _why_not(pid: int) -> str:
    """Return why no code should be added to a process; empty if it may be."""
    try:
        process = psutil.Process(pid)
        owner, status = process.uids().effective, process.status()
        is_here = os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    except (OSError, psutil.Error) as problem:
        host_log.log_ignored(problem)
        return f"process {pid} has ended, or may not be read"
    if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        return f"process {pid} is stopped, by a signal or a debugger"
    if owner != os.geteuid():
        return f"process {pid} belongs to a different user, who may not write the graphs here"
    return (
        "" if is_here else f"process {pid} is in a container with other files; run reprokit there"
    )


def _wait_for(path: Path, limit_s: float) -> str | None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if path.exists():
            return files.read_text(path)
        time.sleep(POLL_S)
    return None
