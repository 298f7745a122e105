"""Run a command as a user does, and keep each line that it prints with the time of the line."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .harness import GRACE_S

POLL_S = 0.2


@dataclass(frozen=True)
class PrintedLine:
    """A line of the terminal, and the seconds from the start of the command to it."""

    text: str
    after_s: float


@dataclass(frozen=True)
class PrintedRun:
    """What a command printed to stdout and stderr together, and what it cost."""

    lines: tuple[PrintedLine, ...]
    status: int | None
    """Exit status, negative for a signal; None where this process ended the command."""
    wall_s: float
    cpu_s: float

    @property
    def text(self) -> str:
        """All lines as one text."""
        return "\n".join(line.text for line in self.lines)


def run_printed(
    command: Sequence[str | Path],
    environ: Mapping[str, str],
    cwd: Path,
    limit_s: float,
    quiet_s: float | None = None,
    when_quiet: Callable[[int], None] | None = None,
) -> PrintedRun:
    """Run a command in its own process group, and end the group in any case.

    With ``quiet_s``, the command ends when it has printed nothing for ``quiet_s`` after a line;
    ``when_quiet`` gets its process id before that. A line about a signal is added as a shell does.
    """
    lines: list[PrintedLine] = []
    began = time.perf_counter()
    child = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert child.stdout is not None
    output = child.stdout

    def read_lines() -> None:
        for row in output:
            text = row.decode(errors="replace").rstrip("\n")
            lines.append(PrintedLine(text, time.perf_counter() - began))

    reader = threading.Thread(target=read_lines, daemon=True)
    reader.start()
    is_ended = False
    try:
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            now = time.perf_counter() - began
            is_quiet = quiet_s is not None and lines and now - lines[-1].after_s > quiet_s
            if is_quiet and when_quiet is not None:
                when_quiet(child.pid)
            if is_quiet or now > limit_s:
                is_ended = True
                ended = _end_group(child.pid)
                break
            time.sleep(POLL_S)
    except BaseException:
        _end_group(child.pid)
        raise
    wall_s = time.perf_counter() - began
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    reader.join(GRACE_S)
    child.returncode = os.waitstatus_to_exitcode(ended[1])
    if child.returncode < 0 and not is_ended:
        name = signal.strsignal(-child.returncode) or str(-child.returncode)
        lines.append(PrintedLine(name, wall_s))
    return PrintedRun(
        tuple(lines),
        None if is_ended else child.returncode,
        wall_s,
        ended[2].ru_utime + ended[2].ru_stime,
    )


def joined(first: PrintedRun, second: PrintedRun) -> PrintedRun:
    """Return two commands, one after the other, as one."""
    later = (PrintedLine(one.text, first.wall_s + one.after_s) for one in second.lines)
    return PrintedRun(
        (*first.lines, *later),
        second.status,
        first.wall_s + second.wall_s,
        first.cpu_s + second.cpu_s,
    )


def _end_group(pid: int) -> tuple[int, int, resource.struct_rusage]:
    """End a process group, and return what ``os.wait4`` says about its leader."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while (ended := os.wait4(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        time.sleep(POLL_S)
    return ended
