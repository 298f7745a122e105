"""Five failing programs, and what a right first answer about each of them has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "first_answer"
ACTION = (
    r"avoid it|minifier_launcher\.py|reporting a bug|To diagnose|reprokit issue|[Ii]ncreasing torch"
)
"""Words that say what to do now: a remedy, a script to run, where to read or to report."""


@dataclass(frozen=True)
class FirstAnswerCase:
    """A program with one failure. The patterns are searched in all that a tool prints."""

    program: str
    what: str
    """A pattern of the words that say what happened."""
    party: str
    """A pattern of the words, or of the class of the exception, that say whose failure it is."""
    lines: tuple[str, ...]
    """Pieces of the user's own lines that belong to the failure."""
    is_each_line_needed: bool = False
    """All of these lines are the answer, instead of one of them."""
    options: tuple[str, ...] = ()
    """Options of ``reprokit capture``."""
    minifier: tuple[str, str] | None = None
    """TORCHDYNAMO_REPRO_AFTER and TORCHDYNAMO_REPRO_LEVEL; None where the minifier does not apply."""
    test: str = "{name}.main()"
    """The body of a test for pytest."""
    is_hang: bool = False

    @property
    def path(self) -> Path:
        """The file of the program."""
        return FOLDER / self.program

    def line_patterns(self) -> list[re.Pattern[str]]:
        """Return patterns of places in the program, as Python, pytest, py-spy and reprokit write
        them. An answer has a match of each pattern.
        """
        rows = self.path.read_text().splitlines()
        numbers = [
            next(number for number, row in enumerate(rows, 1) if piece in row)
            for piece in self.lines
        ]
        groups = [[n] for n in numbers] if self.is_each_line_needed else [numbers]
        file = re.escape(self.program)
        return [
            re.compile(rf"{file}(?::|\", line )(?:{'|'.join(map(str, group))})\b")
            for group in groups
        ]


CASES = {
    "exception": FirstAnswerCase(
        "attention.py",
        what=r"KeyError.*buf1",
        party=r"caused by\s+torch|InductorError|BackendCompilerFailed",
        lines=("weights_of(", "torch.full(", "mask[", "torch.softmax("),
        minifier=("aot", "2"),
    ),
    "hang": FirstAnswerCase(
        "server.py",
        what=r"deadlock|[Nn]o progress|Timeout|\(idle\)",
        party=r"caused by\s+your program",
        lines=("            with stats_lock", "        with model_lock:"),
        is_each_line_needed=True,
        options=("--stall", "20", "--on-stall", "end"),
        is_hang=True,
    ),
    "wrong result": FirstAnswerCase(
        "distances.py",
        what=r"different results|Bad accuracy|not close",
        party=r"caused by\s+torch",
        lines=("flat =", "turned =", "torch.acosh(", "return distance("),
        options=("--compare",),
        minifier=("aot", "4"),
        test="import torch\n    torch.testing.assert_close("
        "{name}.distances(torch.compile({name}.distance)), {name}.distances({name}.distance))",
    ),
    "recompile limit": FirstAnswerCase(
        "blocks.py",
        what=r"recompile_limit",
        party=r"caused by\s+(?:torch|your program)",
        lines=("def forward(", "self.processor("),
    ),
    "crash": FirstAnswerCase(
        "hessian.py",
        what=r"SIGSEGV|Segmentation fault",
        party=r"caused by\s+torch",
        lines=("size =", "torch.mean(", "stiffness(strain)"),
        minifier=("aot", "3"),
    ),
}
