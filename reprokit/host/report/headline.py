"""What happened in one line, for the terminal."""

from __future__ import annotations

import re

from reprokit.core.records.finding import LAST_LINE, Verdict

MAX_COLUMNS = 100
_PHASE = re.compile(r", in phase [\w-]+(?: \([^)]*\))?")


def headline(verdict: Verdict) -> tuple[str, str]:
    """Return what happened as one sentence, and its details: the cause of a hang, or what follows
    the first colon or semicolon of a long sentence.
    """
    where = "" if verdict.phase in (None, "eager") else f" in {verdict.phase}"
    reason = _PHASE.sub("", verdict.reason, count=1) if where else verdict.reason
    rest = ""
    if verdict.kind == "hang" and verdict.cause:
        reason, _, rest = reason.partition(f", {verdict.cause}: ")
    elif len(f"{verdict.kind}{where}: {reason}") > MAX_COLUMNS:
        at = " at " if verdict.kind == "crash" else ": " if ": " in reason else "; "
        reason, _, rest = reason.partition(at)
    told = (row for row in verdict.evidence if verdict.cause == "exit" and LAST_LINE in row)
    rest = next(told, rest)
    reason = reason if reason.endswith(".") else f"{reason}."
    return cut_at_word(f"{verdict.kind}{where}: {reason}"), rest


def cut_at_word(text: str, columns: int = MAX_COLUMNS) -> str:
    """Return a text as one line of at most ``columns`` characters, cut at a word."""
    line = " ".join(text.split())
    if len(line) <= columns:
        return line
    end = line.rfind(" ", 0, columns - 3)
    return f"{line[: end if end > columns // 2 else columns - 4].rstrip(' ,;:')} ..."
