"""Start a program and end all processes that it leaves, also if reprokit is killed.

Runs as ``python -I -S guardian.py FD RUN_ID`` with the standard library only. FD is a socket of
JSON lines. reprokit sends the command, receives its pid, requests its status at the end, and sends
a last request, ``bye``. If the stream ends without ``bye``, reprokit was killed. The guardian then
kills all its descendants and all processes with the mark of the run, which is the run id in their
environment.

Key insight: the program is a child of this process, and this process is a child subreaper. So a
daemon that changes its session, its parent and its environment is still a descendant of this
process, and no other process is.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KILL_ROUNDS, KILL_ROUND_S = 25, 0.2
COMPILER = re.compile(r"(.*-)?(g\+\+|gcc|c\+\+|cc|clang|clang\+\+|collect2|nvcc|hipcc)(-[\d.]+)?")
"""Compilers delete their temporary files on SIGTERM; no other process knows the names."""
COMPILER_GRACE_S = 1.0
RUN_ID = re.compile(r"[0-9a-f]{32}")


class Guardian:
    """Starts one program, and cleans up after it."""

    def __init__(self, control: int, run_id: str) -> None:
        """``control`` is the descriptor of the socket.

        ``run_id`` decides which processes are killed, so it must be complete; raises ValueError.
        """
        check_run_id(run_id)
        self._control, self._rest = control, b""
        self._root = 0
        """The pid of the program until it is reaped; otherwise 0."""
        self._mark = f"REPROKIT_RUN_ID={run_id}".encode()
        self._folders: list[str] = []
        # a reference is kept because subprocess reaps the child of a Popen that was deleted
        self._child: subprocess.Popen[bytes] | None = None

    def serve_requests(self) -> None:
        """Answer the requests of reprokit until it sends ``bye`` or ends."""
        wakeups, signals = os.pipe()
        for end in (wakeups, signals):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(signals)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poll = select.poll()
        for number in (self._control, wakeups):
            poll.register(number, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if wakeups in ready:
                with contextlib.suppress(OSError):
                    os.read(wakeups, 1 << 12)
                self._reap_orphans()
            if self._control in ready:
                for request in self._read_requests():
                    if request is None:
                        self._clean_up()
                        return
                    if "bye" in request:
                        return
                    self._send_answer(
                        self._start_program(request)
                        if "argv" in request
                        else self._reap_program(request)
                    )

    def _read_requests(self) -> list[Any]:
        """Return the requests that have arrived; the only one is None if reprokit has ended."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._control, 1 << 16)
        if not data:
            return [None]
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _send_answer(self, answer: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._control, json.dumps(answer).encode() + b"\n")

    def _start_program(self, request: Any) -> dict[str, object]:
        """Start the program with the standard streams of this process, then close them here.

        Return the answer: its pid or an error.
        """
        self._folders = request["folders"]
        if not request["argv"]:
            self._ignore_signals()
            return {"pid": 0}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ignored = [signal.Signals(number) for number in request["ignored"]]

        def ignore() -> None:
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        try:
            self._child = subprocess.Popen(
                [_bytes(word) for word in request["argv"]],
                env={_bytes(name): _bytes(value) for name, value in request["env"].items()},
                cwd=_bytes(request["cwd"]) if request["cwd"] else None,
                start_new_session=True,
                preexec_fn=ignore if ignored else None,
            )
        except OSError as problem:
            return {
                "errno": problem.errno,
                "strerror": problem.strerror,
                "file": os.fsdecode(problem.filename or b""),
            }
        except (ValueError, subprocess.SubprocessError) as problem:
            return {"errno": 0, "strerror": str(problem), "file": ""}
        finally:
            self._ignore_signals()
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
        self._root = self._child.pid
        return {"pid": self._root}

    def _ignore_signals(self) -> None:
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def _reap_program(self, request: Any) -> dict[str, object]:
        """Reap the program and return the result of ``os.wait4``; the status is None if the program
        has not ended.
        """
        root, self._root = self._root, 0
        with contextlib.suppress(OSError):
            pid, status, usage = os.wait4(root, 0 if request["waits"] else os.WNOHANG)
            if pid:
                return {"status": status, "usage": list(usage)}
        return {"status": None, "usage": []}

    def _reap_orphans(self) -> None:
        for pid in children_of(os.getpid()):
            if pid != self._root:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)

    def _clean_up(self) -> None:
        """Kill all processes of the run, then delete its temporary folders."""
        for _ in range(KILL_ROUNDS):
            victims = self.find_victims()
            if not victims:
                break
            end_compilers(victims)
            for pid in victims:
                _send(pid, signal.SIGKILL)
            time.sleep(KILL_ROUND_S)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def find_victims(self) -> set[int]:
        """Return the descendants of this process, the processes with the mark of the run, and the
        descendants of those.
        """
        parents: dict[int, int] = {}
        found: set[int] = set()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, parent = _stat(name)
                if state in (b"Z", b"X") or int(name) == os.getpid():
                    continue
                parents[int(name)] = int(parent)
                with open(f"/proc/{name}/environ", "rb") as file:
                    if self._mark in file.read().split(b"\0"):
                        found.add(int(name))
        while (
            below := {
                p for p, parent in parents.items() if parent in found or parent == os.getpid()
            }
            - found
        ):
            found |= below
        return found


def check_run_id(run_id: str) -> None:
    """Raise ValueError unless ``run_id`` is a complete run id; an incomplete one could select
    processes of other programs.
    """
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is not a run id")


def end_compilers(victims: set[int]) -> None:
    """Stop the other ``victims``, send SIGTERM to the compilers among them, and wait for the
    compilers.
    """
    compilers = {pid for pid in victims if _is_compiler(pid)}
    if not compilers:
        return
    for pid in victims - compilers:
        _send(pid, signal.SIGSTOP)
    for pid in compilers:
        _send(pid, signal.SIGTERM)
    until = time.monotonic() + COMPILER_GRACE_S
    while time.monotonic() < until and any(map(_is_compiler, compilers)):
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """Return the children of ``pid``. If the kernel has no list of them (CONFIG_PROC_CHILDREN),
    search all processes.
    """
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(_stat(name)[1]) == pid:
                found.append(int(name))
    return found


def _is_compiler(pid: int) -> bool:
    """Return whether a process is a running compiler; a zombie has no command line."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        name = os.path.basename(file.read().partition(b"\0")[0])
        return bool(COMPILER.fullmatch(os.fsdecode(name)))
    return False


def _stat(pid: int | str) -> list[bytes]:
    """Return the state and the parent pid of a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
    return text[text.rindex(b")") + 2 :].split()[:2]


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _bytes(text: str) -> bytes:
    """Return the bytes of a text from JSON, one byte for each character."""
    return text.encode("latin-1")


if __name__ == "__main__":
    Guardian(int(sys.argv[1]), sys.argv[2]).serve_requests()
