"""The only module that prints. It cleans every text, and a write that fails loses only its own
text.

A pack, a path, a ledger or a program may contain control characters, which rewrite a terminal. So
no command calls ``print`` or ``click.echo``, or opens a console of its own. A closed terminal or a
full disk must not cost the pack that a command makes. So no method here raises.
:attr:`Printer.problem` has the first failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, TextIO, TypeAlias, cast

from reprokit.core.redaction import plain
from reprokit.core.redaction.plain import clean_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "PROGRESS",
    "RESULTS",
    "SETTINGS",
    "Echo",
    "OutputSettings",
    "Part",
    "SafePrinter",
    "ascii_json",
    "clean_text",
    "confirm_question",
    "one_line",
    "print_line",
    "print_note",
]

Part: TypeAlias = "str | tuple[str, str]"
"""A text, or a text and its style."""

MAX_LINE_CHARS = 1_000
"""Limit of an error or a line of progress, which may quote a stranger's text."""
MAX_TABLE_CHARS = 1_000_000
"""Width of a table that is not printed on a terminal, so that no cell is broken."""


@dataclass
class OutputSettings:
    """What the options of the running command say about its output."""

    is_json: bool = False
    """``--json``: stdout gets exactly one JSON object, also for an error."""
    is_quiet: bool = False
    """``--quiet``: progress is not printed."""
    is_verbose: bool = False
    """``--verbose``: the log is on stderr, and a capture prints all that it found."""
    color: str = "auto"
    """``auto``, ``always`` or ``never``."""


SETTINGS = OutputSettings()
"""The settings of the running command."""


def one_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Return ``text`` as one line of at most ``limit`` characters."""
    return plain.one_line(text, limit)


class SafePrinter:
    """Print on one of the two standard streams."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.problem: Exception | None = None
        """The first failed write; all later output is lost."""
        self.has_json = False
        """Whether a JSON object was printed."""
        self._paged: list[str] | None = None

    @property
    def stream(self) -> TextIO | None:
        """The current stream; None if it was closed before Python started."""
        stream: TextIO | None = getattr(sys, self._name)
        return stream

    @property
    def is_plain(self) -> bool:
        """Whether the encoding of the stream lacks block characters."""
        return not (getattr(self.stream, "encoding", None) or "").lower().startswith("utf")

    @property
    def buffer(self) -> IO[bytes] | None:
        """The binary stream, for the target's own output; None if the stream is closed."""
        return getattr(self.stream, "buffer", None)

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        try:
            return self.stream is not None and self.stream.isatty()
        except (OSError, ValueError):
            return False

    def print_line(self, *parts: Part) -> None:
        """Print the parts, cleaned, and a newline."""
        cleaned = [
            (clean_text(p), "") if isinstance(p, str) else (clean_text(p[0]), p[1]) for p in parts
        ]
        if not any(style for _, style in cleaned):
            self._write("".join(text for text, _ in cleaned) + "\n")
            return
        from rich.text import Text

        self._draw(Text.assemble(*cleaned))

    def print_text(self, text: str) -> None:
        """Print a text, cleaned, without adding a newline."""
        self._write(clean_text(text))

    def print_table(
        self,
        titles: Iterable[str],
        rows: Iterable[Iterable[Part]],
        right: Sequence[str] = (),
        whole: Sequence[str] = (),
    ) -> None:
        """Print columns. Columns in ``right`` are right-aligned, and cells of columns in ``whole``
        are never broken.

        Without a terminal, each row is one whole line, whatever COLUMNS says.
        """
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, pad_edge=False)
        for title in titles:
            side: Literal["left", "right"] = "right" if title in right else "left"
            drawn.add_column(
                clean_text(title), justify=side, no_wrap=title in whole, overflow="fold"
            )
        for row in rows:
            drawn.add_row(
                *(
                    Text(clean_text(c)) if isinstance(c, str) else Text(clean_text(c[0]), c[1])
                    for c in row
                )
            )
        if self.isatty():
            self._draw(drawn)
            return
        console = self.create_console(MAX_TABLE_CHARS)
        with console.capture() as captured:
            console.print(drawn)
        self._write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def print_json(self, value: Any) -> None:
        """Print one value as JSON in ASCII; every other character is an escape."""
        self.has_json = True
        self._write(ascii_json(value, indent=1) + "\n")

    def create_console(self, width: int | None = None) -> Console:
        """Return a console of rich on this stream, for a live line; its writes never raise."""
        from rich.console import Console

        return Console(
            file=_Sink(self),  # type: ignore[arg-type]
            highlight=False,
            soft_wrap=True,
            width=width,
            color_system=self._color_system(),
            no_color=False,
        )

    def _color_system(self) -> Literal["auto", "standard"] | None:
        """Return the colours of rich for ``--color``, NO_COLOR and FORCE_COLOR; None for none.

        ``standard`` are the 16 colours that every terminal has.
        """
        color = SETTINGS.color
        if color == "auto":
            is_forced = bool(os.environ.get("FORCE_COLOR"))
            color = "never" if os.environ.get("NO_COLOR") else "always" if is_forced else "auto"
        if color == "never" or (color == "auto" and not self.isatty()):
            return None
        return "auto" if color == "auto" else "standard"

    @contextlib.contextmanager
    def paged(self, is_wanted: bool) -> Iterator[None]:
        """Print what the block prints page by page if that is wanted and the stream is a
        terminal.
        """
        if not is_wanted or not self.isatty():
            yield
            return
        import click

        self._paged = []
        try:
            yield
        finally:
            text, self._paged = "".join(self._paged), None
            with contextlib.suppress(OSError, ValueError):
                click.echo_via_pager(text, color=self._color_system() is not None)

    def is_lost(self) -> bool:
        """Whether a write to the stream has failed; buffered output is then dropped."""
        stream = self.stream
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError) as problem:
            self.problem = self.problem or problem
            _give_up(stream)  # type: ignore[arg-type]
        return self.problem is not None

    def _draw(self, drawn: object) -> None:
        self.create_console().print(drawn)

    def _write(self, text: str, stream: TextIO | None = None) -> None:
        """Write cleaned text; after a failure, stop using the stream."""
        if self._paged is not None:
            self._paged.append(text)
            return
        stream = stream or self.stream
        if stream is None or self.problem is not None:
            return
        try:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError) as problem:
            self.problem = problem
            _give_up(stream)


class Echo:
    """The stream on which the output of a program is shown beside that of reprokit.

    A progress bar leaves its line open, and no line of reprokit goes on it.
    """

    is_line_open = False
    """Whether the last line of the program, on either stream, has no end yet."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    @classmethod
    def of(cls, printer: SafePrinter) -> IO[bytes] | None:
        """Return the echo on a printer's stream; None if it is closed."""
        return cast("IO[bytes]", cls(printer.buffer)) if printer.buffer is not None else None

    @classmethod
    def end_line(cls, printer: SafePrinter) -> None:
        """End the line that the program has left open, before a line of reprokit."""
        if Echo.is_line_open:
            Echo.is_line_open = False
            printer.print_line()

    def write(self, data: bytes) -> int:
        """Write output of the program."""
        if data:
            Echo.is_line_open = not data.endswith(b"\n")
        return self._stream.write(data)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


class _Sink:
    """A stream for rich: the printer's stream, without its exceptions.

    It is the original stream: while rich redraws a line, ``sys.stderr`` is a proxy of its console.
    """

    def __init__(self, printer: SafePrinter) -> None:
        self._printer, self._stream = printer, printer.stream
        self.encoding = getattr(printer.stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write the output of rich: cleaned text, and rich's own colours."""
        self._printer._write(text, self._stream)
        return len(text)

    def flush(self) -> None:
        """Do nothing: this object buffers nothing."""

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._printer.isatty()


def ascii_json(value: Any, indent: int | None = None, sort_keys: bool = False) -> str:
    """Return JSON in which each non-ASCII character is an escape; one line without ``indent``."""
    return json.dumps(value, indent=indent, sort_keys=sort_keys, default=repr).replace(
        "\x7f", "\\u007f"
    )


def _give_up(stream: TextIO) -> None:
    """Drop the buffered output of the stream; otherwise Python fails again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


RESULTS = SafePrinter("stdout")
"""The results of a command, on stdout."""
PROGRESS = SafePrinter("stderr")
"""Progress and refusals, on stderr."""


def print_line(text: str) -> None:
    """Print one line of progress, with the indentation of ``text``, as for frames of a stack."""
    indent = " " * min(len(text) - len(text.lstrip(" ")), 8)
    Echo.end_line(PROGRESS)
    PROGRESS.print_line(f"reprokit: {indent}{one_line(text)}")


def print_note(text: str) -> None:
    """Print one line of progress, unless ``--quiet`` is given."""
    if not SETTINGS.is_quiet:
        print_line(text)


def confirm_question(question: str) -> bool:
    """Ask a yes-or-no question on stderr. Without an answer, the result is False."""
    import click

    return PROGRESS.problem is None and click.confirm(clean_text(question), default=False, err=True)
