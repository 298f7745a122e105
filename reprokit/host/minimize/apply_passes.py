"""Apply the reduction passes to one program, until none of them changes it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from reprokit.core.judge import same_failure
from reprokit.core.judge.stacks.location import plural
from reprokit.core.reduce import ast_edits
from reprokit.core.reduce.edit_memory import EditMemory
from reprokit.core.reduce.pass_table import LAST_PASSES, NUMBER_PASSES, PART_PASSES, PASSES, Pass
from reprokit.core.shared import cuts
from reprokit.core.shared.errors import BadInput
from reprokit.host.minimize.answers.oracle import BudgetExhausted, Oracle
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.probe.client import ServerLost
from reprokit.host.system import host_log

SMALL_ROUND = 150
"""A round of passes with at most this number of candidates is always repeated."""
MAX_SYSTEM_ERRORS = 3
ANSWERS_PER_LINE = 100
"""Candidates of a larger round for each line that it is expected to save."""


def apply_passes(text: str, oracle: Oracle, note: Callable[[str], None]) -> str:
    """Apply the passes until none changes the program, and then the last passes once.

    ``note`` gets what could not be done.

    Raises:
        BudgetExhausted: the budget ended.
    """
    edits = EditMemory()
    over = functools.partial(_pass_over, oracle=oracle, note=note, edits=edits)

    def repeat(text: str, step: Callable[[str], str]) -> str:
        return _repeat(text, step, oracle, note)

    def settle(text: str, step: Callable[[str], str]) -> str:
        return _settle(text, step, oracle, edits)

    def without_lines(text: str) -> str:
        return repeat(text, lambda text: over(text, PASSES))

    def without_parts(text: str) -> str:
        return repeat(text, lambda text: over(without_lines(text), PART_PASSES))

    def without_numbers(text: str) -> str:
        return repeat(text, lambda text: over(without_parts(text), NUMBER_PASSES))

    text = settle(settle(text, without_lines), without_numbers)
    return over(text, LAST_PASSES)


def _settle(text: str, step: Callable[[str], str], oracle: Oracle, edits: EditMemory) -> str:
    """Apply a step again, with the edits that were skipped, while that is expected to save enough
    and changes the program.
    """
    while True:
        before, asked = text, oracle.status.answered
        text = step(text)
        asked = oracle.status.answered - asked
        if text == before or not edits.forget_unclear() or not _is_worth(before, text, asked):
            return text


def _repeat(
    text: str, step: Callable[[str], str], oracle: Oracle, note: Callable[[str], None]
) -> str:
    """Apply a step until it changes nothing, or is not expected to save enough for its work."""
    while True:
        before, asked = text, oracle.status.answered
        text = step(text)
        asked = oracle.status.answered - asked
        if text == before:
            return text
        if not _is_worth(before, text, asked):
            saved = count_code_lines(before) - count_code_lines(text)
            tried = plural(asked, "change")
            note(f"{tried} removed only {plural(saved, 'line')}, so it tried no more of these")
            return text


def _is_worth(before: str, after: str, asked: int) -> bool:
    """Return whether a step that asked for this many answers is expected to save enough again.

    It is expected to save half of the lines that it saved before, for as many answers. Answers
    count instead of seconds, so that the repro does not depend on the machine.
    """
    saved = count_code_lines(before) - count_code_lines(after)
    return asked <= SMALL_ROUND or saved / 2 >= asked / ANSWERS_PER_LINE


def _pass_over(
    text: str,
    passes: Sequence[Pass],
    oracle: Oracle,
    note: Callable[[str], None],
    edits: EditMemory,
) -> str:
    """Apply every pass once; a pass that raises leaves the program as it was."""
    for name, step in passes:
        oracle.status.trying = name
        try:
            text = _reduce(step, text, oracle, edits)
        except (BudgetExhausted, BadInput, ServerLost, OSError):
            raise
        except Exception as problem:
            why = f"{name} could not be tried, by a defect of reprokit: {problem!r}"
            note(cuts.cut_head(why, 300))
    return text


def _reduce(
    step: Callable[[str, ast_edits.Test], str], text: str, oracle: Oracle, edits: EditMemory
) -> str:
    """Apply one pass, again after a SystemError: Python 3.11 sometimes raises one about the depth
    of a syntax tree that is not deep (python/cpython#106905).
    """

    def has_failure(new: str) -> bool | None:
        return same_failure.has_failure(oracle.answer_for(new))

    def reduced() -> str:
        edits.begin_pass(text)
        return step(text, lambda new: edits.shows_failure(new, lambda: has_failure(new)))

    for _ in range(MAX_SYSTEM_ERRORS):
        with host_log.suppress(SystemError):
            return reduced()
    return reduced()
