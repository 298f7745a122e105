"""Start a program and end all processes that it leaves, also if reprokit is killed.

Runs as ``python -I -S guardian.py FD RUN_ID`` with the standard library only. FD is a socket of
JSON lines: reprokit sends the command, receives its pid, asks for its status at the end, and says
goodbye. The end of the stream without a goodbye means that reprokit was killed. The guardian then
ends all processes below it and all processes with the mark of the run.

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
ROUNDS, ROUND_S = 25, 0.2
COMPILER = re.compile(r"(.*-)?(g\+\+|gcc|c\+\+|cc|clang|clang\+\+|collect2|nvcc|hipcc)(-[\d.]+)?")
"""Their handler of SIGTERM deletes their temporary files, whose names no other process knows."""
COMPILER_PATIENCE_S = 1.0
RUN_ID = re.compile(r"[0-9a-f]{32}")


class Guardian:
    """One program and its run."""

    def __init__(self, control: int, run_id: str) -> None:
        """``run_id`` decides which processes are killed, so it is required and must be complete."""
        check_processes(run_id)
        self._control, self._rest = control, b""
        self._root = 0
        """The pid of the program until it is reaped; 0 if there is none."""
        self._mark = f"REPROKIT_RUN_ID={run_id}".encode()
        self._folders: list[str] = []
        self._child: subprocess.Popen[bytes] | None = (
            None  # kept: without it, subprocess would reap the program
        )

    def serve(self) -> None:
        """Answer the requests of reprokit until it says goodbye or ends."""
        wakes, signals = os.pipe()
        for end in (wakes, signals):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(signals)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poll = select.poll()
        for number in (self._control, wakes):
            poll.register(number, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if wakes in ready:
                with contextlib.suppress(OSError):
                    os.read(wakes, 1 << 12)
                self._reap_orphans()
            if self._control in ready:
                for asked in self._asked():
                    if asked is None:
                        self._clean_up()
                        return
                    if "bye" in asked:
                        return
                    self._answer(self._start(asked) if "argv" in asked else self._status(asked))

    def _asked(self) -> list[Any]:
        """The next request of reprokit; None if it has ended."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._control, 1 << 16)
        if not data:
            return [None]
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _answer(self, said: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self._control, json.dumps(said).encode() + b"\n")

    def _start(self, asked: Any) -> dict[str, Any]:
        """Start the program with the standard streams of this process, then close them; gives its
        pid or an error.
        """
        self._folders = asked["folders"]
        if not asked["argv"]:
            self._ignore()
            return {"pid": 0}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ignored = [signal.Signals(number) for number in asked["ignored"]]

        def ignore() -> None:
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        try:
            self._child = subprocess.Popen(
                [_bytes(word) for word in asked["argv"]],
                env={_bytes(name): _bytes(value) for name, value in asked["env"].items()},
                cwd=_bytes(asked["cwd"]) if asked["cwd"] else None,
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
            self._ignore()
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
        self._root = self._child.pid
        return {"pid": self._root}

    def _ignore(self) -> None:
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def _status(self, asked: Any) -> dict[str, Any]:
        """Reap the program: the result of ``os.wait4``, or None if it has not ended."""
        root, self._root = self._root, 0
        with contextlib.suppress(OSError):
            pid, status, usage = os.wait4(root, 0 if asked["waits"] else os.WNOHANG)
            if pid:
                return {"status": status, "usage": list(usage)}
        return {"status": None, "usage": []}

    def _reap_orphans(self) -> None:
        for pid in children_of(os.getpid()):
            if pid != self._root:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)

    def _clean_up(self) -> None:
        """End all processes of the run, then delete its temporary folders."""
        for _ in range(ROUNDS):
            victims = self.victims()
            if not victims:
                break
            end_compilers(victims)
            for pid in victims:
                _send(pid, signal.SIGKILL)
            time.sleep(ROUND_S)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def victims(self) -> set[int]:
        """Processes below this one, processes with the mark, and all processes below those."""
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


def check_processes(run_id: str) -> None:
    """Raise ValueError for a text that is not a run id: an empty mark would be in every
    environment.
    """
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is no run id")


def end_compilers(victims: set[int]) -> None:
    """Send SIGTERM to the compilers among ``victims`` and wait for them, while all other victims
    are stopped.
    """
    compilers = {pid for pid in victims if _is_compiler(pid)}
    if not compilers:
        return
    for pid in victims - compilers:
        _send(pid, signal.SIGSTOP)
    for pid in compilers:
        _send(pid, signal.SIGTERM)
    until = time.monotonic() + COMPILER_PATIENCE_S
    while time.monotonic() < until and any(map(_is_compiler, compilers)):
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """The children of ``pid``; without a list of the kernel (CONFIG_PROC_CHILDREN), it looks at
    every process.
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
    """Whether a process is a running driver of a compiler; a zombie has no command line."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        name = os.path.basename(file.read().partition(b"\0")[0])
        return bool(COMPILER.fullmatch(os.fsdecode(name)))
    return False


def _stat(pid: int | str) -> list[bytes]:
    """The state and the parent of a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
    return text[text.rindex(b")") + 2 :].split()[:2]


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _bytes(text: str) -> bytes:
    """The bytes of a text from JSON: one byte for each character."""
    return text.encode("latin-1")


if __name__ == "__main__":
    Guardian(int(sys.argv[1]), sys.argv[2]).serve()
