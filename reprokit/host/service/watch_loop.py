"""Watch a running process, or a command from its start, until it or the watch ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import access, running_program
from reprokit.host.service import look, service_watch
from reprokit.host.service.service_watch import LockUp, ServiceWatch, WatchOptions
from reprokit.host.system import host_log

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals to a watched command; the terminal sends its own to the command too."""
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class WatchResult:
    """What a watch saw."""

    pid: int
    lock_ups: tuple[LockUp, ...]
    seconds: float
    cpu_s: float
    """CPU seconds of the watch itself, with the tools and the examinations that it started."""
    exit_status: int | None = None
    """Of a command, as ``subprocess`` reports it; None for a process that was there before."""
    is_interrupted: bool = False
    """The user ended the watch; the process goes on."""


def watch_process(
    pid: int, output: Path, options: WatchOptions, say: Callable[[str], None]
) -> WatchResult:
    """Watch a process until it ends, or until SIGINT, SIGTERM or SIGHUP.

    Raises:
        BadInput: its stacks cannot be read.
    """
    if why := access.check_access(pid):
        raise BadInput(why)
    wake, stopped = threading.Event(), threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        wake.set()

    with _handlers(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), stop)):
        lock_ups, seconds, cpu_s = _watch(pid, output, options, say, wake, stopped.is_set)
    return WatchResult(pid, lock_ups, seconds, cpu_s, is_interrupted=stopped.is_set())


def watch_command(
    words: Sequence[str],
    output: Path,
    options: WatchOptions,
    say: Callable[[str], None],
    stdout: int | None = None,
) -> WatchResult:
    """Start a command and watch it until it ends. Signals to reprokit are sent to it.

    It has the input, the output, the environment and the process group of reprokit; ``stdout`` is a
    different descriptor for its output.

    Raises:
        BadInput: the command cannot be started.
    """
    wake = threading.Event()
    command: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            wake.set()
        elif command is not None and not (number in OF_TERMINAL and _is_in_foreground()):
            with host_log.suppress(OSError):
                command.send_signal(number)

    with _handlers(dict.fromkeys((*FORWARDED, signal.SIGCHLD), forward)):
        try:
            # it also inherits descriptors such as those of systemd; ours are not inheritable
            command = subprocess.Popen(list(words), stdout=stdout, close_fds=False)
        except OSError as problem:
            raise BadInput(f"cannot run {words[0]!r}: {problem.strerror or problem}") from problem
        started = command
        lock_ups, seconds, cpu_s = _watch(
            command.pid, output, options, say, wake, lambda: started.poll() is not None
        )
        status = command.wait()
    return WatchResult(command.pid, lock_ups, seconds, cpu_s, status)


def create_output(named: Path | None, label: str, pid: int = 0) -> Path:
    """Create the folder of a watch, outside of the working directory of the process ``pid`` unless
    the user names it. Raises BadInput if that is not possible.
    """
    name = f"watch-{label}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder = named or Path("reprokit-out") / name
    try:
        if named is None and pid and running_program.works_below(pid, Path.cwd()):
            folder = Path(tempfile.mkdtemp(prefix="reprokit-out-")) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / service_watch.EVENTS_FILE).open("a").close()
    except OSError as problem:
        raise BadInput(
            f"cannot write below {folder}: {problem.strerror or problem}; name a writable"
            " --output-dir"
        ) from problem
    return folder.resolve()


def _watch(
    pid: int,
    output: Path,
    options: WatchOptions,
    say: Callable[[str], None],
    wake: threading.Event,
    has_ended: Callable[[], bool],
) -> tuple[tuple[LockUp, ...], float, float]:
    began, began_cpu = time.monotonic(), look.own_cpu_s()
    say(service_watch.describe(pid, options, output))
    with contextlib.closing(ServiceWatch(pid, output, options, say)) as watch:
        while not has_ended() and watch.step():
            due = time.monotonic() + watch.tick_s
            # py-spy ends with SIGCHLD too
            while (left_s := due - time.monotonic()) > 0 and not has_ended():
                wake.wait(left_s)
                wake.clear()
    seconds, cpu_s = time.monotonic() - began, look.own_cpu_s() - began_cpu
    return tuple(watch.lock_ups), round(seconds, 1), round(cpu_s, 2)


@contextlib.contextmanager
def _handlers(
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]],
) -> Iterator[None]:
    """Set handlers of signals in this block. An ignored signal (nohup) stays ignored."""
    before = {n: signal.getsignal(n) for n in handlers}
    chosen = {n: h for n, h in handlers.items() if before[n] is not signal.SIG_IGN}
    for number, handler in chosen.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in chosen:
            signal.signal(number, before[number])


def _is_in_foreground() -> bool:
    """Return whether the terminal sends its signals to this group, and so to the command."""
    with host_log.suppress(OSError, ValueError):
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    return False
