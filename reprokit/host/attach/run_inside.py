"""Run a program of ours inside a running Python process, between two of its bytecodes.

gdb adds a pending call (``Py_AddPendingCall``), which the main thread runs before its next
bytecode. The GIL is never taken at an arbitrary stop, and no function that may hold a lock there,
such as malloc, is called: the text of the call is in a page of its own. A native loop and a blocked
main thread never run the call. Then its text is replaced by one that does nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil

from reprokit.core.shared import cuts
from reprokit.core.shared.errors import BadInput
from reprokit.host.run import launch
from reprokit.host.system import deletion, files, host_log

GDB_TIMEOUT_S = 60.0
POLL_S = 0.05
PAGE_BYTES = 4096
NOTHING = b"0\0"
"""The text of a call that does nothing."""
KEEP_CALLING = (
    "handle all nostop noprint pass",
    "handle SIGINT nostop noprint pass",
    "set unwindonsignal on",
)
"""A signal for the process must not end a call of gdb: gdb would detach with the registers of the
call, and the process would crash.
"""

# The program must not raise: an exception would appear in the user's code. It leaves no module, no
# path and no page behind. os.register_at_fork has no inverse, so the agent must not call it.
_PROGRAM = """
import os, sys
folder, run, done, address = {folder!r}, {run!r}, {done!r}, {address:#x}
before, register, writes = set(sys.modules), os.register_at_fork, sys.dont_write_bytecode
said = ""
try:
    os.register_at_fork, sys.dont_write_bytecode = (lambda **_: None), True
    sys.path.insert(0, folder)
    try:
        from _reprokit.agent.record import live_graphs
        said = str(live_graphs.record_live_graphs(run))
    finally:
        sys.path.remove(folder)
        os.register_at_fork, sys.dont_write_bytecode = register, writes
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "_reprokit":
                del sys.modules[name]
        sys.path_importer_cache.pop(folder, None)
    import ctypes
    ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t({page}))
except BaseException as problem:
    said = repr(problem)
with open(done + ".part", "w") as file:
    file.write(said)
os.rename(done + ".part", done)
"""
# a name of __main__, or a file that is not closed, would be left behind
_CALL = (
    "try:\n (lambda file: (exec(file.read(), {{}}), file.close()))(open({file!r}))\n"
    "except BaseException: pass\n\0"
)


class CannotRunInside(Exception):
    """Nothing could be run inside the process; the message says why."""


def find_gdb() -> str:
    """Return the path of gdb. Raises BadInput if it is not installed."""
    path = shutil.which("gdb")
    if path is None:
        raise BadInput("--graphs needs gdb, which is not installed: apt install gdb")
    return path


def record_graphs_inside(pid: int, run_path: Path, deadline_s: float) -> int:
    """Record the graphs that process ``pid`` compiles into the run directory, and return their
    number.

    Raises:
        CannotRunInside: the process cannot be stopped by gdb, or its main thread runs no Python
            code for ``deadline_s``.
    """
    if why := _why_not(pid):
        raise CannotRunInside(why)
    with launch.copied_agent(run_path, frozenset()) as agent:
        program, text, done = (agent / name for name in ("inside.py", "call.bin", "inside.done"))
        address = _map_page(pid)
        program.write_text(
            _PROGRAM.format(
                folder=str(agent),
                run=str(run_path),
                done=str(done),
                address=address,
                page=PAGE_BYTES,
            )
        )
        text.write_bytes(_CALL.format(file=str(program)).encode())
        answer = _run_gdb(
            pid,
            f"restore {text} binary {address:#x}",
            'printf "added %d\\n", ((int(*)(void*,void*))Py_AddPendingCall)'
            f"((void*)PyRun_SimpleString, (void*){address:#x})",
        )
        if not re.search(r"^added 0$", answer, re.MULTILINE):
            _unmap_page(pid, address)
            raise CannotRunInside(_why(answer))
        said = _wait_for(done, deadline_s)
        if said is None:
            _write_memory(pid, address, NOTHING)  # the call may still run, and then does nothing
            said = _wait_for(done, POLL_S)
        deletion.delete_path(done, inside=run_path)
    if said is None:
        raise CannotRunInside(
            f"the main thread of process {pid} ran no Python code for {deadline_s:g} s: it is in a"
            " native loop, or it waits"
        )
    if not said.isdigit():
        raise CannotRunInside(f"the graphs could not be written: {cuts.cut_head(said, 300)}")
    return int(said)


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


def _map_page(pid: int) -> int:
    """Map a page in the process and return its address."""
    answer = _run_gdb(
        pid,
        'printf "page %p\\n",'
        " ((void*(*)(void*,unsigned long,int,int,int,long))mmap)"
        f"(0, {PAGE_BYTES}, 3, 34, -1, 0)",  # readable and writable, private and anonymous
    )
    found = re.search(r"^page 0x([0-9a-f]+)$", answer, re.MULTILINE)
    if found is None:
        raise CannotRunInside(_why(answer))
    return int(found[1], 16)


def _unmap_page(pid: int, address: int) -> None:
    _run_gdb(pid, f"call ((int(*)(void*,unsigned long))munmap)({address:#x}, {PAGE_BYTES})")


def _run_gdb(pid: int, *commands: str) -> str:
    """Stop the process for a moment, run the commands, and return what gdb prints."""
    words = [find_gdb(), "-p", str(pid), "-batch", "-nx"]
    for setting in ("auto-solib-add off", "debuginfod enabled off", "auto-load off"):
        words += ["-iex", f"set {setting}"]
    libraries = ("sharedlibrary libpython", "sharedlibrary libc\\.")
    for command in (*KEEP_CALLING, *libraries, *commands, "detach"):
        words += ["-ex", command]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=GDB_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C would end a call of gdb
        )
    except subprocess.TimeoutExpired as problem:
        with host_log.suppress(OSError):
            os.kill(pid, signal.SIGCONT)  # the stop that gdb asked for may still come
        raise CannotRunInside(f"gdb did not end in {GDB_TIMEOUT_S:g} s") from problem
    answer = done.stdout.decode("utf-8", "replace")
    host_log.LOGGER.info("gdb: %s", answer)
    return answer


def _why(answer: str) -> str:
    """Return the reason in the output of gdb."""
    if "ptrace:" in answer or "Could not attach" in answer:
        return "gdb may not attach to the process"
    if "No symbol" in answer:
        return (
            "the interpreter has no symbol Py_AddPendingCall: it is stripped; use the python of a"
            " distribution, of conda or of uv"
        )
    return f"gdb could not add the call: {cuts.cut_head(' '.join(answer.split())[-300:], 300)}"


def _wait_for(path: Path, limit_s: float) -> str | None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if path.exists():
            return files.read_text(path)
        time.sleep(POLL_S)
    return None


def _write_memory(pid: int, address: int, data: bytes) -> None:
    with host_log.suppress(OSError), open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(data)
