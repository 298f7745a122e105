"""Write tracebacks and stacks as Python does, with only the frames of torch and other packages.

The paths of a machine, and the frames of the program itself, say nothing to a reader of an issue.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.shared import cuts

HEADER = "Traceback (most recent call last):"
MAX_FRAMES = 8
MAX_MESSAGE_LINES = 6
MAX_LINE_CHARS = 300
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}), in (?P<function>.*)')
_LEFT_OUT = re.compile(r"  \[(\d+) outer frames? left out\]")
_COMPILER_ERROR = re.compile(r":\d+:\d+: (?:fatal )?error: ")
_FOLDERS = re.compile(r"^/\S*/(?=[^/\s]+:\d+:\d+: )")
_CAUSED = re.compile(
    r"\n\n(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)
_TYPE = re.compile(r"[A-Za-z_][\w.]{0,300}")
_HINT = re.compile(r"Set TORCHDYNAMO_VERBOSE=1|You can suppress this exception|For even more dev")
"""Advice of torch after a message, which is the same in every report."""


@dataclass(frozen=True)
class _Entry:
    file: str
    line: str
    function: str
    source: str = ""

    @property
    def text(self) -> str:
        head = f'  File "{self.file}", line {self.line}, in {self.function}'
        return f"{head}\n    {self.source}" if self.source else head


def shorten_traceback(text: str, program: str = "", max_frames: int = MAX_FRAMES) -> str:
    """Return the last traceback in ``text``, such as the stderr of a program; empty without one.

    It has the innermost ``max_frames`` frames of packages, whose files are relative to
    ``site-packages``. A frame in the file ``program`` is kept if there is no frame of a package. A
    message that quotes the program's lines has only the name of this file.
    """
    text = fr.without_ranks(text)
    start = text.rfind(HEADER)
    if start < 0:
        return ""
    entries, message, before = _read(text[start + len(HEADER) :])
    if program:
        path = re.compile(rf'(?<=File ")[^"]*/{re.escape(program)}(?=")')
        message = [path.sub(program, row) for row in message]
    return _render(entries, message, program, max_frames, before)


def parse_traceback(text: str) -> Raised | None:
    """Return the exception that ``traceback.format_exc()`` wrote, with its causes; None if the text
    is none.
    """
    links = []
    for part in reversed(_CAUSED.split(text)):
        _, header, rest = part.partition(HEADER)
        entries, message, _ = _read(rest)
        kind, _, words = "\n".join(message).strip().partition(":")
        if header and _TYPE.fullmatch(kind):
            frames = (Frame(one.file, one.function, int(one.line)) for one in reversed(entries))
            links.append(Link(kind, words.strip(), tuple(frames)))
    return Raised(tuple(links)) if links else None


def raised_in_worker(link: Link) -> Link | None:
    """Return the exception of a worker process that torch raised again, such as one of DataLoader
    or of ``torch.multiprocessing.spawn``; None for any other. Torch has its traceback in the message
    (``torch/_utils.py``, ``torch/multiprocessing/spawn.py``).
    """
    _, header, rest = link.message.partition(f"\nOriginal {HEADER}")
    if not header:
        _, header, rest = link.message.partition(f"terminated with the following error:\n{HEADER}")
    raised = parse_traceback(f"{HEADER}{rest}") if header else None
    return raised.chain[0] if raised is not None else None


def _read(text: str) -> tuple[list[_Entry], list[str], int]:
    """Return the frames of a traceback without its header, the lines of the message, and how many
    frames were left out.
    """
    entries: list[_Entry] = []
    message: list[str] = []
    before = 0
    for row in text.strip("\n").splitlines():
        if (match := _FRAME.fullmatch(row)) and not message:
            entries.append(_Entry(match["file"], match["line"], match["function"]))
        elif (match := _LEFT_OUT.fullmatch(row)) and not entries:  # it is shortened already
            before = int(match[1])
        elif row.startswith("  ") and entries and not message:
            if row.startswith("    ") and not entries[-1].source and set(row) - set(" ^~"):
                last = entries[-1]
                entries[-1] = _Entry(last.file, last.line, last.function, row.strip())
        else:
            message.append(row)
    return entries, message, before


def render_exception(link: Link, max_frames: int = MAX_FRAMES) -> str:
    """Return an exception that the agent recorded as a traceback."""
    entries = _entries(reversed(link.frames))
    message = f"{link.type}: {link.message}" if link.message.strip() else link.type
    return _render(entries, message.strip().splitlines(), "", max_frames)


def render_stack(stack: Sequence[Frame], max_frames: int = 2 * MAX_FRAMES) -> str:
    """Return a stack, which has the innermost frame first, as Python writes it: the innermost
    frame last. Frames of the program have the name of their file.
    """
    entries = [
        dataclasses.replace(entry, file=entry.file.rpartition("/")[2])
        if fr.normalise_file(entry.file) == "<user>"
        else dataclasses.replace(entry, file=fr.normalise_file(entry.file))
        for entry in _entries(reversed(stack))
        if fr.normalise_file(entry.file) not in ("<agent>", "<frozen>")
    ]
    left_out = max(0, len(entries) - max_frames)
    return "\n".join([*_left_out(left_out), *(entry.text for entry in entries[-max_frames:])])


def _entries(frames: Iterable[Frame]) -> list[_Entry]:
    return [_Entry(f.file, str(f.line), f.function) for f in frames]


def _render(
    entries: list[_Entry], message: list[str], program: str, max_frames: int, before: int = 0
) -> str:
    kept, left_out = _kept(entries, program, max_frames)
    left_out += before
    rows = [cuts.cut_head(row, MAX_LINE_CHARS) for row in _message_rows(message)]
    if not kept:
        return "\n".join(rows)
    return "\n".join([HEADER, *_left_out(left_out), *(entry.text for entry in kept), *rows])


def _left_out(count: int) -> list[str]:
    return [f"  [{count} outer frame{'s' if count > 1 else ''} left out]"] if count else []


def _kept(entries: list[_Entry], program: str, max_frames: int) -> tuple[list[_Entry], int]:
    """Return the innermost frames of packages, and how many outer ones are left out."""
    named = [
        _Entry(name, e.line, e.function, e.source)
        for e in entries
        if not (name := fr.normalise_file(e.file)).startswith("<") or name == "<generated>"
    ]
    if not named and program:
        own = [e for e in entries if e.file == program or e.file.endswith(f"/{program}")]
        named = [_Entry(program, e.line, e.function, e.source) for e in own]
    return named[-max_frames:], max(0, len(named) - max_frames)


def _message_rows(message: list[str]) -> list[str]:
    """Return the lines of the message without torch's advice, at most ``MAX_MESSAGE_LINES``. Of the
    output of a C++ compiler, they are the errors.
    """
    end = next((i for i, row in enumerate(message) if _HINT.match(row)), len(message))
    rows = [row for row in message[:end] if row.strip()]
    if len(rows) <= MAX_MESSAGE_LINES:
        return rows
    errors = [_FOLDERS.sub("", row) for row in rows[1:] if _COMPILER_ERROR.search(row)]
    kept = [rows[0], *errors][:MAX_MESSAGE_LINES] if errors else rows[:MAX_MESSAGE_LINES]
    more = len(rows) - len(kept)
    return [*kept, f"[{more} more line{'s' * (more != 1)}]"]
