"""Make the calls of a pending call with gdb, on processors that stopped_thread does not know."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess

from reprokit.core.shared import cuts
from reprokit.host.attach.inside.injection import CannotRunInside
from reprokit.host.system import host_log

GDB_TIMEOUT_S = 60.0
PAGE_BYTES = 4096
NO_SYMBOL = (
    "the interpreter has no symbol Py_AddPendingCall: it is stripped; use the python of a"
    " distribution, of conda or of uv"
)
KEEP_CALLING = (
    "handle all nostop noprint pass",
    "handle SIGINT nostop noprint pass",
    "set unwindonsignal on",
)
"""A signal for the process must not end a call of gdb: gdb would detach with the registers of the
call, and the process would crash.
"""


class GdbCaller:
    """The calls of ``pending_call.Caller``. Each stops all threads of the process for a moment."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def map_page(self) -> int:
        """Map a page in the process and return its address."""
        answer = _run_gdb(
            self._pid,
            'printf "page %p\\n",'
            " ((void*(*)(void*,unsigned long,int,int,int,long))mmap)"
            f"(0, {PAGE_BYTES}, 3, 34, -1, 0)",  # readable and writable, private and anonymous
        )
        found = re.search(r"^page 0x([0-9a-f]+)$", answer, re.MULTILINE)
        if found is None:
            raise CannotRunInside(_why(answer))
        return int(found[1], 16)

    def add_call(self, address: int, ends_wait: bool) -> bool:
        """Add a pending call that runs the text at ``address``; False if the queue is full. A wait
        is not ended.
        """
        answer = _run_gdb(
            self._pid,
            'printf "added %d\\n", ((int(*)(void*,void*))Py_AddPendingCall)'
            f"((void*)PyRun_SimpleString, (void*){address:#x})",
        )
        found = re.search(r"^added (-?\d+)$", answer, re.MULTILINE)
        if found is None:
            raise CannotRunInside(_why(answer))
        return found[1] == "0"

    def unmap_page(self, address: int) -> None:
        """Unmap the page."""
        _run_gdb(
            self._pid,
            f"call ((int(*)(void*,unsigned long))munmap)({address:#x}, {PAGE_BYTES})",
        )


def find_gdb() -> str:
    """Return the path of gdb; empty if it is not installed."""
    return shutil.which("gdb") or ""


def _run_gdb(pid: int, *commands: str) -> str:
    """Stop the process for a moment, run the commands, and return what gdb prints."""
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
        return NO_SYMBOL
    if "extended state" in answer:
        return "this version of gdb cannot call a function on this processor"
    return f"gdb could not add the call: {cuts.cut_head(' '.join(answer.split())[-300:], 300)}"
