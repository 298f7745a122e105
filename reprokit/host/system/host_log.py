"""The log of a command: ``reprokit.log`` in its run directory, and ``--verbose`` on the terminal.

An exception that the host ignores on purpose leaves a line here, so that a defect that hides behind
it can be found. Lines from before the run directory exists are kept in memory until it does. A log
that cannot be written costs only the log.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TextIO

from reprokit.core.shared.contract import run_names

MAX_LOG_BYTES = 8_000_000
MAX_KEPT_LINES = 1_000
"""Lines that wait for a run directory."""
LOGGER = logging.getLogger("reprokit")
LOGGER.propagate = False  # a program that uses reprokit.api has handlers of its own
LOGGER.setLevel(logging.DEBUG)
_FORMAT = logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%Y-%m-%dT%H:%M:%S")
_PACKAGE = str(Path(__file__).resolve().parents[2])
_ignored: collections.Counter[tuple[str, str]] = collections.Counter()


class _Writer(logging.Handler):
    """Sends each line to all who want it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: collections.deque[str] = collections.deque(maxlen=MAX_KEPT_LINES)
        self.file: TextIO | None = None
        self.left_bytes = 0
        self.show: Callable[[str], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        line = _FORMAT.format(record)
        if self.show is not None:
            self.show(line)
        if self.file is None:
            self.kept.append(line)
        else:
            self.write(line)

    def write(self, line: str) -> None:
        """Write one line to the file, unless the log is at its limit."""
        if self.file is None or self.left_bytes <= 0:
            return
        self.left_bytes -= len(line) + 1
        end = "\n" if self.left_bytes > 0 else f"\nthe log ends at {MAX_LOG_BYTES} bytes\n"
        with contextlib.suppress(OSError, ValueError):
            self.file.write(line + end)


_WRITER = _Writer()
LOGGER.addHandler(_WRITER)


@contextlib.contextmanager
def log_to(folder: Path) -> Iterator[None]:
    """Append the log to ``reprokit.log`` in ``folder``, with the lines that waited for it."""
    if _WRITER.file is not None:  # a run inside a run, such as one size of a scale measurement
        yield
        return
    try:
        _WRITER.file = (folder / run_names.LOG_FILE).open(
            "a", encoding="utf-8", errors="backslashreplace", buffering=1
        )
    except OSError as problem:
        LOGGER.info("no log can be written in %s: %s", folder, problem)
        yield
        return
    _WRITER.left_bytes = MAX_LOG_BYTES
    while _WRITER.kept:
        _WRITER.write(_WRITER.kept.popleft())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _WRITER.file.close()
        _WRITER.file = None


def show_log(write: Callable[[str], None]) -> None:
    """Call ``write`` with each line that waits for a run directory, and each later line, for
    ``--verbose``.
    """
    for line in _WRITER.kept:
        write(line)
    _WRITER.show = write


def log_ignored(problem: BaseException, depth: int = 1) -> None:
    """Write a line about an exception that the caller ignores.

    The same kind of exception at the same place is logged the first time, the tenth time, the
    hundredth time and so on: /proc of a process that ends raises many.
    """
    frame = sys._getframe(depth)
    where = f"{frame.f_code.co_filename.removeprefix(_PACKAGE).lstrip('/')}:{frame.f_lineno}"
    key = where, type(problem).__name__
    _ignored[key] += 1
    times = _ignored[key]
    if times == 1 or str(times).strip("0") == "1":
        again = f" ({times} times so far)" if times > 1 else ""
        LOGGER.debug("%s ignored %s: %s%s", where, type(problem).__name__, problem, again)


class suppress(contextlib.suppress):
    """``contextlib.suppress`` that leaves a line in the log."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        is_ignored = bool(super().__exit__(kind, problem, traceback))
        if is_ignored and problem is not None:
            log_ignored(problem, depth=2)
        return is_ignored
