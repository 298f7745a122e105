"""The line that shows how far a long operation is."""

from __future__ import annotations

import pytest

from reprokit.core.judge.stacks import phases
from reprokit.host.system.progress import OperationStatus

LINES = {
    "reducing: 0 tried, nothing smaller yet, at most 300 s left": OperationStatus(
        "reducing", is_search=True, limit_s=300
    ),
    "reducing: 38 tried, 7 lines so far, numbers, at most 300 s left": OperationStatus(
        "reducing", "numbers", is_search=True, lines=7, probes=38, limit_s=300
    ),
    "trying other backends and modes, 4 of 6: aot_eager": OperationStatus(
        "trying other backends and modes", "aot_eager", 4, 6
    ),
    "proving in fresh processes, 2 of 5": OperationStatus("proving in fresh processes", "", 2, 5),
    "reading": OperationStatus("reading"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_status_is_one_line(line: str) -> None:
    """The line has the activity, the counter with its total, the current part, the seconds left."""
    status = LINES[line]
    assert status.describe(status.began) == line


def test_the_seconds_left_are_never_negative() -> None:
    """An operation that is over its limit has 0 seconds left."""
    status = OperationStatus("reducing", limit_s=10)
    assert status.describe(status.began + 99) == "reducing: at most 0 s left"


def test_each_phase_has_words() -> None:
    """Each phase that a frame or an event can have is shown in words."""
    named = {phase for phase, *_ in phases._BY_FRAME} | {phase for _, phase in phases._BY_EVENT}
    assert named | phases.COMPILE_PHASES | set(phases.TRITON_STAGES) == {
        *phases.PHASE_WORDS,
        phases.CALLER,
    }


@pytest.mark.parametrize(
    ("done", "elapsed_s", "left"),
    [(1, 60.0, ""), (3, 1.0, ""), (3, 20.0, ", about 40 s left"), (2, 60.0, ", about 5 min left")],
)
def test_the_end_of_counted_parts_is_estimated(done: int, elapsed_s: float, left: str) -> None:
    """As soon as one part has ended, and not in the first seconds."""
    status = OperationStatus("trying workarounds", "eager", done, 6)
    line = f"trying workarounds, {done} of 6: eager{left}"
    assert status.describe(status.began + elapsed_s) == line
