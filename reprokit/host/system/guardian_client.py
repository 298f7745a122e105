"""Start a program as a child of a guardian, which kills the processes that the program leaves, even
if reprokit is killed.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from reprokit.host.system import host_log, inherited_settings

ANSWER_TIMEOUT_S = 60.0
"""Deadline for an answer of a guardian, on a machine that may be busy."""


class GuardedProcess:
    """A guardian, and the program that it started."""

    def __init__(
        self, guardian: subprocess.Popen[bytes], control: socket.socket, run_id: str
    ) -> None:
        self._guardian, self._control, self._rest = guardian, control, b""
        self.run_id = run_id
        self.pid = 0
        """The pid of the program; 0 if the guardian has none and only kills marked processes."""

    @property
    def guardian_pid(self) -> int:
        """The pid of the guardian; all processes of the program are its descendants, even
        daemons.
        """
        return self._guardian.pid

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """The stdout and stderr of the program."""
        assert self._guardian.stdout is not None and self._guardian.stderr is not None
        return self._guardian.stdout, self._guardian.stderr

    def send_request(self, **fields: object) -> dict[str, Any]:
        """Send one request to the guardian and return its answer. Raises OSError if it has
        ended.
        """
        self._control.settimeout(ANSWER_TIMEOUT_S)
        self._control.sendall(json.dumps(fields).encode() + b"\n")
        while b"\n" not in self._rest:
            data = self._control.recv(1 << 16)
            if not data:
                raise ConnectionError("reprokit's helper process of the run has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def reap_program(self, waits: bool) -> tuple[int, resource.struct_rusage] | None:
        """Reap the program and return the status and usage of ``os.wait4``.

        Return None if the program has not ended or its status is lost.
        """
        with host_log.suppress(OSError):
            answer = self.send_request(waits=waits)
            if answer["status"] is not None:
                return int(answer["status"]), resource.struct_rusage(answer["usage"])
        return None

    def dismiss(self) -> None:
        """End the guardian: there is nothing left to clean up."""
        with host_log.suppress(OSError), self._control:
            self._control.sendall(b'{"bye": 1}\n')
        with host_log.suppress(subprocess.TimeoutExpired):
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
    """Start a program as a child of its own guardian. Raises OSError if it cannot start.

    If reprokit is killed before it dismisses the guardian, the guardian deletes ``folders``. With
    ``takes_inherited``, the program ignores the signals that the parent of reprokit ignores.
    """
    guarded = _start_guardian(run_id, stdin, subprocess.PIPE)
    try:
        answer = guarded.send_request(
            argv=[_text(word) for word in argv],
            cwd=_text(cwd) if cwd else "",
            env={_text(name): _text(value) for name, value in environ.items()},
            folders=[str(f) for f in folders],
            ignored=inherited_settings.ignored_signals() if takes_inherited else [],
        )
        if "pid" not in answer:
            raise OSError(answer["errno"], answer["strerror"], answer["file"])
    except BaseException:
        guarded.dismiss()
        raise
    guarded.pid = int(answer["pid"])
    return guarded


def watch_run_id(run_id: str, folders: Sequence[Path] = ()) -> GuardedProcess | None:
    """Start a guardian without a program. If reprokit is killed, it kills the processes that have
    ``run_id`` in their environment, and deletes ``folders``. Return None if it cannot start.
    """
    try:
        guarded = _start_guardian(run_id, subprocess.DEVNULL, subprocess.DEVNULL)
    except OSError as problem:
        host_log.log_ignored(problem)
        return None
    try:
        guarded.send_request(argv=[], folders=[str(f) for f in folders])
    except OSError as problem:
        host_log.log_ignored(problem)
        guarded.dismiss()
        return None
    except BaseException:  # KeyboardInterrupt too
        guarded.dismiss()
        raise
    return guarded


def _start_guardian(run_id: str, stdin: int | None, stream: int) -> GuardedProcess:
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
    """Return any bytes as text for JSON, one character for each byte."""
    return os.fsencode(value).decode("latin-1")
