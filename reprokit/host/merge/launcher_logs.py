"""Read how ranks ended, from the summary that torchrun prints.

``torch.distributed.elastic.multiprocessing.errors.ChildFailedError`` writes a block for each rank
that failed, the first one last. A rank that ended with exit code 0 has no block.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.ranks.rank_records import RankState
from reprokit.core.records.process_state import cut_words
from reprokit.host.system import files, private_names

MAX_BYTES = 64_000_000
MAX_BLOCKS, MAX_LINE_CHARS = 100_000, 2000
MAX_REASON_CHARS = 200
NAME = re.compile(r".*\.(log|txt|out|err)")
_BEGIN = re.compile(r"\bFAILED\s*$")
_FIRST = re.compile(r"Root Cause \(first observed failure\):\s*$")
_END = re.compile(r"={20,}\s*$")
_NEXT = re.compile(r"(?:^|\s)\[\d{1,6}\]:\s*$")
_FIELD = re.compile(r"\b(time|host|rank|exitcode|error_file|traceback) *: ?(\S*)")
_RAISED = re.compile(r"(?:^|[:\s])([A-Za-z_][\w.]{0,80}(?:Error|Exception|Interrupt|Exit)\b.*)$")
_NUMBER = re.compile(r"-?\d{1,9}")


@dataclass(frozen=True)
class RankExit:
    """How one rank ended."""

    rank: int
    reason: str
    """A clause without its subject: ``was killed by SIGKILL``."""
    time: str
    host: str
    is_first: bool = False
    """torchrun saw it end before all others of its node."""

    @property
    def summary(self) -> str:
        """One line about the rank."""
        on = f" on {self.host}" if self.host not in ("", "localhost") else ""
        at = self.time.replace("_", " ")
        return f"rank {self.rank} {self.reason} at {at}{on}"

    @property
    def state(self) -> RankState:
        """The state of the rank, for the search for a desync."""
        return RankState(self.rank, summary=self.summary, has_ended=True)


@dataclass
class _Block:
    """The lines about one rank."""

    is_first: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    raised: str = ""

    def read_line(self, line: str) -> None:
        """Read one line of the block."""
        if "traceback" not in self.fields and (found := _FIELD.search(line)):
            self.fields.setdefault(found[1], found[2])
        if "traceback" in self.fields and (raised := _RAISED.search(line)):
            self.raised = raised[1]

    def as_exit(self) -> RankExit | None:
        """Return how the rank ended; None for a block without its rank or its exit code."""
        rank, code = (self.fields.get(name, "") for name in ("rank", "exitcode"))
        if not _NUMBER.fullmatch(rank) or not _NUMBER.fullmatch(code) or int(rank) < 0:
            return None
        time, host = (self.fields.get(name, "") for name in ("time", "host"))
        return RankExit(int(rank), self._reason(int(code)), time, host, self.is_first)

    def _reason(self, code: int) -> str:
        if -code in {int(number) for number in signal.Signals}:
            return f"was killed by {signal.Signals(-code).name}"
        if code < 0:
            return f"was killed by signal {-code}"
        if not self.raised:
            return f"ended with exit code {code}"
        text = private_names.get_redactor().redact_text(self.raised.strip())
        return f"ended with exit code {code} ({cut_words(text, MAX_REASON_CHARS)})"


def read_launcher_log(path: Path) -> tuple[RankExit, ...]:
    """Return how ranks ended; none if the file has no summary of torchrun.

    Raises:
        OSError: the file cannot be read.
    """
    with files.open_regular_file(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MAX_BYTES))
        text = files.read_at_most(file, MAX_BYTES).decode("utf-8", "replace")
    blocks: list[_Block] = []
    for full_line in text.splitlines():
        line = full_line[:MAX_LINE_CHARS]
        if _BEGIN.search(line):  # a launcher that starts the ranks again prints a summary each time
            blocks.clear()
        elif len(blocks) > MAX_BLOCKS:
            break
        elif _FIRST.search(line):
            blocks.append(_Block(is_first=True))
        elif _END.search(line):
            blocks.append(_Block())
        elif _NEXT.search(line):
            blocks.append(_Block(is_first=bool(blocks) and blocks[-1].is_first))
        elif blocks:
            blocks[-1].read_line(line)
    return tuple(found for block in blocks if (found := block.as_exit()) is not None)


def first_exit(exits: tuple[RankExit, ...]) -> RankExit | None:
    """Return the rank that ended first on any node."""
    return min((e for e in exits if e.is_first), key=lambda e: e.time, default=None)
