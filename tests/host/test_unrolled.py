"""The speed of tracing a loop and its remaining time are estimated."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, Progress
from reprokit.host.run import unrolled_loops

PROGRAM = """N = 1_000_000
def f(x):
    for i in range(3):
        for _ in {loop}:
            x = x + 1
    while True:
        x = x + 2
    return x
"""


@pytest.mark.parametrize(
    ("loop", "line", "bound"),
    [
        ("range(N)", 5, 1_000_000),
        ("range(10, 100, 2)", 5, 45),
        ("range(5)", 3, 3),
        ("range(len(x))", 5, 0),
        ("x", 5, 0),
        ("range(1, 2, 0)", 5, 0),
        ("range(N)", 7, 0),
    ],
)
def test_the_bound_is_read_from_the_loops_text(
    loop: str, line: int, bound: int, tmp_path: Path
) -> None:
    """The bound is that of the innermost ``for`` around the line; any iterable other than a plain
    range gives 0.
    """
    file = tmp_path / "model.py"
    file.write_text(PROGRAM.format(loop=loop))
    assert unrolled_loops.loop_bound(f"{file}:{line} in f") == bound


def events(seconds: float) -> list[Event]:
    return [
        Begin(name="dynamo", t=10.0, tid=1),
        Begin(name="bytecode_tracing", t=10.0, tid=1),
        Progress(unit="line", t=10.0 + seconds, tid=1),
    ]


def test_the_iterations_their_pace_and_the_remaining_time(tmp_path: Path) -> None:
    """The measured part comes first, and an estimate is added only if the bound is known."""
    file = tmp_path / "model.py"
    file.write_text(PROGRAM.format(loop="range(N)"))
    assert (
        unrolled_loops.loop_pace(events(50), f"{file}:5 in f", 25_000)
        == "in 50 s (2.0 ms each); the loop has 1000000 iterations: about 32 min more at this rate"
    )
    assert unrolled_loops.loop_pace(events(50), "gone.py:5 in f", 25_000) == "in 50 s (2.0 ms each)"
    assert unrolled_loops.loop_pace([], "gone.py:5 in f", 25_000) == ""
