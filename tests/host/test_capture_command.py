"""The command line that repeats a measurement has all of its options."""

from __future__ import annotations

import pytest

from reprokit.host.request import command_line
from reprokit.host.request.run_request import DEADLINE_S, Request
from reprokit.host.request.target import Target, parse_command


def test_a_measurement_of_growth_is_repeated_with_its_sizes() -> None:
    """Without the growth the command captures one size; with it, it measures all of them, and the
    other options of the target stay.
    """
    knobs = {"layers": 8, "batch": 2, "dtype": "bfloat16"}
    request = Request(Target("zoo", name="llama-tiny"), deadline_s=DEADLINE_S, knobs=knobs)
    assert command_line.capture_command(request) == (
        "reprokit capture --layers 8 --set batch=2 --dtype bfloat16 --model llama-tiny"
    )
    growth = {"at": 8, "knob": "layers", "sizes": [{"size": n} for n in (2, 4, 8)]}
    assert command_line.capture_command(request, growth) == (
        "reprokit scale --at 8 --set layers=2,4,8 --set batch=2 --dtype bfloat16 --model llama-tiny"
    )


@pytest.mark.parametrize("compares", [True, False])
def test_a_comparison_that_is_not_the_default_is_repeated(compares: bool) -> None:
    """Results of a factory are compared, and those of a command are not."""
    factory = Request(Target("zoo", name="llama-tiny"), deadline_s=DEADLINE_S, compares=compares)
    command = Request(parse_command(("python", "a.py")), deadline_s=None, compares=compares)
    assert ("--no-compare" in command_line.capture_command(factory)) is not compares
    assert ("--compare" in command_line.capture_command(command)) is compares
    growth = {"at": 8, "knob": "layers", "sizes": []}
    assert "compare" not in command_line.capture_command(factory, growth)
