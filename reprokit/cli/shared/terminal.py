"""How commands talk: progress on stderr (a live line on a terminal, plain lines elsewhere), results
on stdout.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from reprokit.cli.shared import out

if TYPE_CHECKING:
    from rich.status import Status

    from reprokit.host.system.progress import OperationStatus
    from reprokit.host.watch.watchdog import RunProgress

PLAIN_EVERY_S = 10.0


class LiveStatus:
    """Shows phase, elapsed time and memory while the target runs."""

    def __init__(self, is_quiet: bool = False, is_plain: bool = False) -> None:
        """``is_plain`` writes lines even on a terminal: a program of its own writes there too."""
        self._is_terminal = out.PROGRESS.isatty() and not is_quiet and not is_plain
        self._is_quiet = is_quiet
        self._status: Status | None = None
        self._next = self._next_status = PLAIN_EVERY_S

    def __enter__(self) -> LiveStatus:
        if self._is_terminal:
            self._status = out.PROGRESS.console().status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def pause(self) -> None:
        """Leave the terminal to a question."""
        if self._status is not None:
            self._status.stop()

    def resume(self) -> None:
        """Go on after it."""
        if self._status is not None:
            self._status.start()

    def show(self, progress: RunProgress) -> None:
        """Redraw the line, or write one now and then where there is no terminal."""
        if self._is_quiet:
            return
        if self._status is not None:
            self._update(_line(progress))
        elif progress.elapsed_s >= self._next:
            self._next = progress.elapsed_s + PLAIN_EVERY_S
            out.print_line(_line(progress))

    def show_status(self, status: OperationStatus) -> None:
        """How a reduction stands."""
        if self._is_quiet:
            return
        elapsed = time.monotonic() - status.began
        if self._status is not None:
            self._update(_status_line(status, elapsed))
        elif elapsed >= self._next_status:
            self._next_status = elapsed + PLAIN_EVERY_S
            out.print_line(_status_line(status, elapsed))

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._is_quiet:
            return
        if self._status is not None:
            out.print_line(text)  # rich draws it above the live line
            self._update(text)
        else:
            out.print_line(text)
        self._next = PLAIN_EVERY_S

    def _update(self, text: str) -> None:
        from rich.text import Text

        assert self._status is not None
        self._status.update(Text(out.one_line(text)))


def _status_line(status: OperationStatus, elapsed_s: float) -> str:
    if status.words:
        return f"{elapsed_s:.0f} s, {status.words}"
    size = f"{status.lines} lines" if status.lines else "nothing yet"
    rate = f"{status.probes / elapsed_s:.1f} a second" if elapsed_s > 1 else ""
    parts = [
        f"{elapsed_s:.0f} s",
        f"best {size}",
        f"{status.probes} probes",
        rate,
        f"trying {status.trying}",
    ]
    return ", ".join(p for p in parts if p)


def _line(progress: RunProgress) -> str:
    parts = [
        f"{progress.elapsed_s:.0f} s",
        f"{progress.rss_bytes / 1e6:.0f} MB",
        progress.phase_event or "no phase yet",
    ]
    if progress.position:
        parts.append(progress.position[-80:])
    if progress.quiet_s >= 5:
        parts.append(f"no progress for {progress.quiet_s:.0f} s")
    return ", ".join(parts)
