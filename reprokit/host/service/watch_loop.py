"""Watch a running process, or a command from its start, until it or the watch ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import access, running_program
from reprokit.host.run import run_directory
from reprokit.host.service import service_watch
from reprokit.host.service.service_watch import LockUp, ServiceWatch, WatchOptions
from reprokit.host.system import host_log, process_tree

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals to a watched command; the terminal sends its own to the command too."""
MAX_FAILURES, RETRY_S = 5, 10.0
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
    stops: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stops.append(number)

    with _handlers(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), stop)):
        lock_ups, seconds, cpu_s = _watch(pid, output, options, say, lambda: bool(stops))
    return WatchResult(pid, lock_ups, seconds, cpu_s, is_interrupted=bool(stops))


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
    command: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        # SIGCHLD only ends the wait
        if number == signal.SIGCHLD:
            return
        if command is None:
            early.append(number)
        elif not (number in OF_TERMINAL and _is_in_foreground()):
            with host_log.suppress(OSError):
                command.send_signal(number)

    with _handlers(dict.fromkeys((*FORWARDED, signal.SIGCHLD), forward)):
        try:
            # it also inherits descriptors such as those of systemd; ours are not inheritable
            command = subprocess.Popen(list(words), stdout=stdout, close_fds=False)
        except OSError as problem:
            raise BadInput(f"cannot run {words[0]!r}: {problem.strerror or problem}") from problem
        started = command
        for number in early:  # they came while the command started
            forward(number, None)
        lock_ups, seconds, cpu_s = _watch(
            command.pid, output, options, say, lambda: started.poll() is not None
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
        raise run_directory.cannot_write(folder, problem) from problem
    return folder.resolve()


def _watch(
    pid: int,
    output: Path,
    options: WatchOptions,
    say: Callable[[str], None],
    has_ended: Callable[[], bool],
) -> tuple[tuple[LockUp, ...], float, float]:
    """Watch until ``has_ended()``, or until the process ends. A defect of the watch does not end it
    and never reaches the command.
    """
    began, began_cpu = time.monotonic(), sum(process_tree.own_cpu_seconds())
    say(service_watch.describe(pid, options, output))
    lock_ups: tuple[LockUp, ...] = ()
    failures = 0
    with _wake_up_pipe() as woken:
        while failures < MAX_FAILURES and not has_ended():
            try:
                with contextlib.closing(ServiceWatch(pid, output, options, say)) as watch:
                    try:
                        while not has_ended() and watch.step():
                            _wait(woken, watch.tick_s, has_ended)
                    finally:
                        lock_ups += tuple(watch.lock_ups)
                break
            except psutil.NoSuchProcess as problem:
                host_log.log_ignored(problem)
                break
            except Exception as problem:
                host_log.log_ignored(problem)
                failures += 1
                say(f"the watch failed and begins again: {type(problem).__name__}: {problem}")
                _wait(woken, RETRY_S, has_ended)
    seconds, cpu_s = time.monotonic() - began, sum(process_tree.own_cpu_seconds()) - began_cpu
    return lock_ups, round(seconds, 1), round(cpu_s, 2)


@contextlib.contextmanager
def _wake_up_pipe() -> Iterator[int]:
    """Return a descriptor that is readable after a signal.

    A lock, such as that of ``threading.Event``, could be held by the code that a signal interrupts.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def _wait(woken: int, seconds: float, has_ended: Callable[[], bool]) -> None:
    """Wait for ``seconds``, or until ``has_ended()``; py-spy ends with SIGCHLD too."""
    due = time.monotonic() + seconds
    while (left_s := due - time.monotonic()) > 0 and not has_ended():
        if select.select([woken], [], [], left_s)[0]:
            with host_log.suppress(OSError):
                os.read(woken, 4096)


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
    with host_log.suppress(OSError), open("/dev/tty", "rb") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False
