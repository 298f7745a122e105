"""Run a program in a process with Python 3.14 or newer, through ``sys.remote_exec`` (PEP 768).

The function must be called by the same version of Python, so the interpreter of the process calls
it, in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from reprokit.core.shared import cuts
from reprokit.host.attach import running_program
from reprokit.host.attach.inside.injection import CannotRunInside
from reprokit.host.system import host_log

TIMEOUT_S = 30.0
NO_PROGRAM = "/dev/null"
"""A process runs the last program that it was given; this one is empty."""
_INTERPRETER = re.compile(r"python3(\.\d+)?t?d?")
_HAS_IT = "import sys; print(hasattr(sys, 'remote_exec') and sys.is_remote_debug_enabled())"
_CALL_IT = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


class RemoteExec:
    """Programs for one process. The kernel must permit to write its memory, as for a debugger."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def start(self, program: Path) -> None:
        """Ask for the program. Raises CannotRunInside if that is not possible."""
        error = _call_python(self._pid, _CALL_IT, str(self._pid), str(program))[1]
        if error:
            why = cuts.cut_head(error.splitlines()[-1], 300)
            raise CannotRunInside(f"sys.remote_exec failed: {why}")

    def remove(self) -> None:
        """Do nothing: the process keeps only the name of the last program."""

    def cancel(self) -> None:
        """Let the process run nothing, if it has not run the program yet."""
        _call_python(self._pid, _CALL_IT, str(self._pid), NO_PROGRAM)


def is_supported(pid: int) -> bool:
    """Return whether the interpreter of a process has ``sys.remote_exec``.

    Only an interpreter that this user runs already is asked, and no other program that contains
    Python.
    """
    program = running_program.describe_process(pid)
    if not _INTERPRETER.fullmatch(os.path.basename(os.path.realpath(program.python))):
        return False
    if why := running_program.why_not_run(program):
        host_log.LOGGER.info("sys.remote_exec is not looked for: %s", why)
        return False
    return _call_python(pid, _HAS_IT)[0].strip() == "True"


def _call_python(pid: int, code: str, *words: str) -> tuple[str, str]:
    """Return what the interpreter of the process prints when it runs ``code`` in a new process."""
    python = running_program.describe_process(pid).python
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", code, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
        host_log.log_ignored(problem)
        return "", str(problem)
    failed = done.stderr.strip() or f"exit status {done.returncode}"
    return done.stdout, failed if done.returncode else ""
