"""What the ways to run a program of ours inside a running Python process have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class CannotRunInside(Exception):
    """Nothing could be run inside the process; the message says why."""


class Injection(Protocol):
    """One way to let the main thread of a process run a program, between two of its bytecodes."""

    def start(self, program: Path) -> None:
        """Ask for the program. Raises CannotRunInside if that is not possible."""

    def remove(self) -> None:
        """Remove what the injection left in the process, after the program has run."""

    def cancel(self) -> None:
        """Let the process run nothing, if it has not run the program yet."""
