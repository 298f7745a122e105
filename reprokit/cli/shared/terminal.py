"""Show the progress of a command on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from reprokit.cli.shared import out

if TYPE_CHECKING:
    from rich.status import Status

    from reprokit.host.system.progress import OperationStatus
    from reprokit.host.watch.watchdog import RunProgress

PLAIN_INTERVAL_S = 10.0


class LiveStatus:
    """Show phase, elapsed time and memory while the target runs."""

    def __init__(self, is_quiet: bool = False, is_plain: bool = False) -> None:
        """Create the display; ``is_plain`` prints plain lines, for a target that also prints."""
        self._is_terminal = out.PROGRESS.isatty() and not is_quiet and not is_plain
        self._is_quiet = is_quiet
        self._status: Status | None = None
        self._next = self._next_status = PLAIN_INTERVAL_S

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
        if self._is_quiet:
            return
        if self._status is not None:
            self._update(_line(progress))
        elif progress.elapsed_s >= self._next:
            self._next = progress.elapsed_s + PLAIN_INTERVAL_S
            out.print_line(_line(progress))

    def show_status(self, status: OperationStatus) -> None:
        """Show the state of a longer operation, such as a reduction."""
        if self._is_quiet:
            return
        elapsed = time.monotonic() - status.began
        if self._status is not None:
            self._update(_status_line(status, elapsed))
        elif elapsed >= self._next_status:
            self._next_status = elapsed + PLAIN_INTERVAL_S
            out.print_line(_status_line(status, elapsed))

    def show_message(self, text: str) -> None:
        """Print a line that is not redrawn."""
        if self._is_quiet:
            return
        if self._status is not None:
            out.print_line(text)  # rich draws it above the live line
            self._update(text)
        else:
            out.print_line(text)
        self._next = PLAIN_INTERVAL_S

    def _update(self, text: str) -> None:
        from rich.text import Text

        assert self._status is not None
        self._status.update(Text(out.one_line(text)))


def _status_line(status: OperationStatus, elapsed_s: float) -> str:
    if status.text:
        return f"{elapsed_s:.0f} s, {status.text}"
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
