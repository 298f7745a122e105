"""Start a program as a child of its guardian, which ends all that the program leaves, also if
reprokit is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from reprokit.host.system import inherited_settings

ANSWER_S = 60.0
"""Deadline for an answer of a guardian, on a machine that may be busy."""


class GuardedProcess:
    """A guardian, and the program that it has started."""

    def __init__(
        self, guardian: subprocess.Popen[bytes], control: socket.socket, run_id: str
    ) -> None:
        self._guardian, self._control, self._rest = guardian, control, b""
        self.run_id = run_id
        self.pid = 0
        """The pid of the program; 0 if the guardian only watches for the mark of the run."""

    @property
    def guardian_pid(self) -> int:
        """The pid of the guardian; all processes of the program stay below it, daemons included."""
        return self._guardian.pid

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """The stdout and stderr of the program."""
        assert self._guardian.stdout is not None and self._guardian.stderr is not None
        return self._guardian.stdout, self._guardian.stderr

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Send one request to the guardian; OSError if it has ended."""
        self._control.settimeout(ANSWER_S)
        self._control.sendall(json.dumps(asked).encode() + b"\n")
        while b"\n" not in self._rest:
            data = self._control.recv(1 << 16)
            if not data:
                raise ConnectionError("the guardian of the run has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        told = json.loads(line)
        assert isinstance(told, dict)
        return told

    def reap(self, waits: bool) -> tuple[int, resource.struct_rusage] | None:
        """Reap the program and give the result of ``os.wait4``; None if it has not ended, or if the
        status is lost.
        """
        with contextlib.suppress(OSError):
            told = self.ask(waits=waits)
            if told["status"] is not None:
                return int(told["status"]), resource.struct_rusage(told["usage"])
        return None

    def dismiss(self) -> None:
        """Tell the guardian that nothing is left to clean up."""
        with contextlib.suppress(OSError), self._control:
            self._control.sendall(b'{"bye": 1}\n')
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guardian.wait(2)


def start_guarded(
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path | None,
    run_id: str,
    stdin: int | None,
    folders: Sequence[Path] = (),
    takes_inherited: bool = False,
) -> GuardedProcess:
    """Start a program below its own guardian; raises OSError if it cannot start.

    The guardian deletes ``folders`` if reprokit is killed before it dismisses the guardian. With
    ``takes_inherited`` the program ignores the signals that the parent of reprokit ignores.
    """
    guarded = _start(run_id, stdin, subprocess.PIPE)
    try:
        told = guarded.ask(
            argv=[_text(word) for word in argv],
            cwd=_text(cwd) if cwd else "",
            env={_text(name): _text(value) for name, value in environ.items()},
            folders=[str(f) for f in folders],
            ignored=inherited_settings.ignored_signals() if takes_inherited else [],
        )
        if "pid" not in told:
            raise OSError(told["errno"], told["strerror"], told["file"])
    except BaseException:
        guarded.dismiss()
        raise
    guarded.pid = int(told["pid"])
    return guarded


def watch_run_id(run_id: str, folders: Sequence[Path] = ()) -> GuardedProcess | None:
    """A guardian for processes that others start with the mark of a run; None if it cannot
    start.
    """
    try:
        guarded = _start(run_id, subprocess.DEVNULL, subprocess.DEVNULL)
    except OSError:
        return None
    try:
        guarded.ask(argv=[], folders=[str(f) for f in folders])
    except OSError:
        guarded.dismiss()
        return None
    except BaseException:  # an interrupt
        guarded.dismiss()
        raise
    return guarded


def _start(run_id: str, stdin: int | None, stream: int) -> GuardedProcess:
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            script = str(Path(__file__).with_name("guardian.py"))
            guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", script, str(theirs.fileno()), run_id],
                stdin=stdin,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
    except BaseException:
        ours.close()
        raise
    return GuardedProcess(guardian, ours, run_id)


def _text(value: str | Path) -> str:
    """Any bytes as text for JSON: one character for each byte."""
    return os.fsencode(value).decode("latin-1")
