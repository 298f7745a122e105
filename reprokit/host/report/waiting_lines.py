"""The lines at which the threads of a hang wait, with their code: both sides of a lock."""

from __future__ import annotations

import re
from pathlib import Path

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.host.report.report_model import WaitingLine
from reprokit.host.report.users_line import source_line

MAX_LINES = 8
_WAITS = re.compile(
    r"(?P<who>[^;]*?)\bat (?P<file>[^\s:;]+\.py):(?P<line>\d+)(?: in (?P<function>[\w.<>]+))?"
)


def waiting_lines(verdict: Verdict, seen: Observation) -> list[WaitingLine]:
    """Return each line that the cause of a hang names, once, in the order of the text."""
    if verdict.kind != "hang":
        return []
    paths = {
        (frame.file, frame.line)
        for dump in seen.dumps
        for thread in dump.threads
        for frame in thread.frames
    }
    rows: dict[str, WaitingLine] = {}
    for match in _WAITS.finditer("; ".join((verdict.detail, *verdict.path))):
        file, number = match["file"], int(match["line"])
        # one tool reports whole paths, and another one names
        whole = sorted({f for f, n in paths if n == number and f"/{f}".endswith(f"/{file}")})
        codes = (source_line(Path(path), number) for path in (*whole, file))
        if code := next(filter(None, codes), ""):
            who = match["who"].strip(" ,") or "it waits"
            place = f"{file}:{number}" + (f" in {match['function']}" if match["function"] else "")
            rows.setdefault(f"{file}:{number}", {"who": who, "place": place, "code": code})
    return list(rows.values())[:MAX_LINES]
