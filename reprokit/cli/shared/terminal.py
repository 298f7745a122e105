"""Show the progress of a command on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reprokit.cli.shared import out

if TYPE_CHECKING:
    from rich.status import Status

    from reprokit.host.system.progress import OperationStatus
    from reprokit.host.watch.watchdog import RunProgress

FIRST_INTERVAL_S = 10.0
PLAIN_INTERVAL_S = 60.0
"""Seconds to the first line of progress and between later ones, where there is no live line."""
MAX_POSITION_CHARS = 60
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")


class LiveStatus:
    """Show what runs, how far it is, and how long it may take."""

    def __init__(self, is_quiet: bool = False, is_plain: bool = False) -> None:
        """Create the display; ``is_plain`` prints plain lines, for a target that also prints.

        With ``--quiet``, nothing is shown.
        """
        is_quiet = (is_quiet and not out.SETTINGS.is_verbose) or out.SETTINGS.is_quiet
        self._is_terminal = out.PROGRESS.isatty() and not is_quiet and not is_plain
        self._is_quiet = is_quiet
        self._status: Status | None = None
        self._printed_at = time.monotonic() - max(PLAIN_INTERVAL_S - FIRST_INTERVAL_S, 0.0)
        """Time of the last plain line."""
        self._activity = ""
        """The operation of the last plain line."""

    def __enter__(self) -> LiveStatus:
        if self._is_terminal:
            self._status = out.PROGRESS.create_console().status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def pause(self) -> None:
        """Stop the live line, so that a question can be asked."""
        if self._status is not None:
            self._status.stop()

    def resume(self) -> None:
        """Start the live line again."""
        if self._status is not None:
            self._status.start()

    def show_progress(self, progress: RunProgress) -> None:
        """Show the progress of a run: redraw the live line, or print a line per interval."""
        self._show(_line(progress))

    def show_status(self, status: OperationStatus) -> None:
        """Show the state of a longer operation, such as a reduction.

        Without a terminal, print a line when the operation begins, and then one per interval.
        """
        is_new = status.activity != self._activity
        self._activity = status.activity
        self._show(status.describe(time.monotonic()), is_new)

    def show_message(self, text: str) -> None:
        """Print a line that is not redrawn."""
        if self._is_quiet:
            return
        self._activity = ""
        self._print(text)
        if self._status is not None:
            self._update(text)  # rich draws the printed line above the live line

    def _show(self, text: str, is_new: bool = False) -> None:
        if self._is_quiet:
            return
        if self._status is not None:
            self._update(text)
        elif is_new or time.monotonic() >= self._printed_at + PLAIN_INTERVAL_S:
            self._print(text)

    def _print(self, text: str) -> None:
        self._printed_at = time.monotonic()
        out.print_line(text)

    def _update(self, text: str) -> None:
        from rich.text import Text

        assert self._status is not None
        self._status.update(Text(out.one_line(text)))


def current_folder() -> Path | None:
    """Return the current folder; None if it was deleted."""
    from reprokit.host.system import host_log

    with host_log.suppress(OSError):
        return Path.cwd()
    return None


def _shown_position(position: str) -> str:
    """Return ``torch/nn/modules/linear.py:134 in forward`` or ``train.py:12`` without the folders
    before it.
    """
    position = _INSTALLED.sub("", position).removeprefix(f"{current_folder()}/")
    if len(position) <= MAX_POSITION_CHARS:
        return position
    rest = position[-MAX_POSITION_CHARS:]
    return f"...{rest[max(rest.find('/'), 0) :]}"


def _line(progress: RunProgress) -> str:
    limit = f" of at most {progress.limit_s:.0f} s" if progress.limit_s else ""
    parts = [
        f"{progress.elapsed_s:.0f} s{limit}",
        f"{progress.rss_bytes / 1e6:.0f} MB",
        progress.activity or "starting",
    ]
    if progress.position:
        parts.append(_shown_position(progress.position))
    if progress.quiet_s >= 5:
        parts.append(f"no progress for {progress.quiet_s:.0f} s")
    return ", ".join(parts)
