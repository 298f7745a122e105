"""Add a pending call to a running Python process with gdb.

The main thread runs the call (``Py_AddPendingCall``) before its next bytecode. The GIL is never
taken at an arbitrary stop, and no function that may hold a lock there, such as malloc, is called:
the text of the call is in a page of its own. A native loop and a blocked main thread never run the
call. Then its text is replaced by one that does nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from reprokit.core.shared import cuts
from reprokit.host.attach.injection import CannotRunInside
from reprokit.host.system import host_log

GDB_TIMEOUT_S = 60.0
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
# a name of __main__, or a file that is not closed, would be left behind
_CALL = (
    "try:\n (lambda file: (exec(file.read(), {{}}), file.close()))(open({file!r}))\n"
    "except BaseException: pass\n\0"
)


class PendingCall:
    """A pending call of one process, in a page of its own.

    Raises:
        CannotRunInside: gdb is missing, or cannot stop the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._address = _map_page(pid)
        self.clean_up = (
            "import ctypes; ctypes.CDLL(None).munmap("
            f"ctypes.c_void_p({self._address:#x}), ctypes.c_size_t({PAGE_BYTES}))"
        )

    def start(self, program: Path) -> None:
        """Add the call. Raises CannotRunInside if that is not possible."""
        text = program.with_suffix(".call")
        text.write_bytes(_CALL.format(file=str(program)).encode())
        answer = _run_gdb(
            self._pid,
            # gdb knows no quotes here, so the path may not have a space
            f"restore {text.name} binary {self._address:#x}",
            'printf "added %d\\n", ((int(*)(void*,void*))Py_AddPendingCall)'
            f"((void*)PyRun_SimpleString, (void*){self._address:#x})",
            folder=text.parent,
        )
        if not re.search(r"^added 0$", answer, re.MULTILINE):
            _unmap_page(self._pid, self._address)
            raise CannotRunInside(_why(answer))

    def cancel(self) -> None:
        """Let the call do nothing, if it has not run yet."""
        _write_memory(self._pid, self._address, NOTHING)


def find_gdb() -> str:
    """Return the path of gdb; empty if it is not installed."""
    return shutil.which("gdb") or ""


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


def _run_gdb(pid: int, *commands: str, folder: Path | None = None) -> str:
    """Stop the process for a moment, run the commands in ``folder``, and return what gdb prints."""
    gdb = find_gdb()
    if not gdb:
        raise CannotRunInside("gdb is not installed")
    words = [gdb, "-p", str(pid), "-batch", "-nx"]
    for setting in ("auto-solib-add off", "debuginfod enabled off", "auto-load off"):
        words += ["-iex", f"set {setting}"]
    libraries = ("sharedlibrary libpython", "sharedlibrary libc\\.")
    for command in (*KEEP_CALLING, *libraries, *commands, "detach"):
        words += ["-ex", command]
    try:
        done = subprocess.run(
            words,
            cwd=folder,
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


def _write_memory(pid: int, address: int, data: bytes) -> None:
    with host_log.suppress(OSError), open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(data)
