"""The servers and jobs of users that hang or are healthy (benchmarks/cases/servers).

Each program says in its docstring what is true about it, and how it is started and driven:

Truth: what a right answer says. Words: what it contains, as patterns that are separated by commas.
Run: the command. Ask: requests and other steps in order; one that ends with & is not waited for.
Busy: the steps that keep a healthy program busy. Attach: the process that a user would name: root,
port (of the listening process), or child NAME. Processes: a name of processes that are not below it.
Settle: the seconds after the last step until it hangs. Needs: its packages. Redis: it needs one.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "servers"
_FIELD = re.compile(r"^([A-Z][a-z]+): (.*(?:\n(?!\n|[A-Z][a-z]+: ).*)*)", re.MULTILINE)


@dataclass(frozen=True)
class ServerCase:
    """A program with one fault, or a healthy one in one of its modes."""

    name: str
    path: Path
    fields: dict[str, str] = field(repr=False)
    mode: str = ""
    """How a healthy program is driven, "idle" or "busy"; empty for a faulty one."""

    @property
    def words(self) -> list[str]:
        """Patterns, all of which a right answer contains."""
        return [word.strip() for word in self.fields.get("Words", "").split(",") if word.strip()]

    @property
    def steps(self) -> list[str]:
        """What is done once before the program is looked at."""
        return self.fields.get("Ask", "").split()

    @property
    def busy_steps(self) -> list[str]:
        """What is done again and again while a healthy program is looked at."""
        return self.fields.get("Busy", "").split() if self.mode == "busy" else []

    @property
    def options(self) -> list[str]:
        """More options of ``reprokit attach``, which its first answer names."""
        return self.fields.get("Options", "").split()

    @property
    def settle_s(self) -> float:
        """Seconds after the last step until the program hangs."""
        return float(self.fields.get("Settle", "5"))

    @property
    def needs(self) -> list[str]:
        """The modules that the program imports and that may be missing."""
        return self.fields.get("Needs", "").split()

    def hang_lines(self) -> list[int]:
        """Return the lines that a right answer names."""
        rows = self.path.read_text().splitlines()
        return [number for number, row in enumerate(rows, 1) if row.endswith("# HANG")]

    def line_patterns(self) -> dict[int, re.Pattern[str]]:
        """Return a pattern of each of these lines, as py-spy, pystack and reprokit write it. The
        file of a cell has a name that the kernel gives it.
        """
        is_cell = "kernel_session" in self.fields.get("Run", "")
        file = r"(?:\d+\.py|cell|In ?\[\d+\])" if is_cell else re.escape(self.path.name)
        return {
            number: re.compile(rf"{file}(?::|\", line |, line | line ){number}\b")
            for number in self.hang_lines()
        }


def load_cases() -> dict[str, ServerCase]:
    """Return all cases; a healthy program is one case for each of its modes."""
    cases = {}
    for path in sorted(FOLDER.glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        fields = {name: " ".join(value.split()) for name, value in _FIELD.findall(text)}
        if "Run" not in fields:
            continue
        if not path.stem.endswith("_healthy"):
            cases[path.stem] = ServerCase(path.stem, path, fields)
            continue
        for mode in fields.get("Modes", "idle busy").split():
            name = path.stem if path.stem.endswith(f"_{mode}_healthy") else f"{path.stem}_{mode}"
            cases[name] = ServerCase(name, path, fields, mode)
    return cases
