"""``capture --compare-speed`` finds compiled calls that are slower than eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.reprokit_calls import reprokit

BREAKS = """
import torch

def step(x):
    x = torch.sin(x)
    torch._dynamo.graph_break()
    return x

def function(x):
    for _ in range(60):
        x = step(x)
    return x

def make():
    return function, (torch.randn(16),)
"""


@pytest.mark.real("it times calls in two processes")
def test_graph_breaks_that_slow_a_program_down_are_the_cause(write: Any, tmp_path: Path) -> None:
    """Sixty small graphs take several times as long as eager; the verdict has the ratio, the cause
    and the line, and fails the capture only if the user says so.
    """
    target = f"{write('breaks.py', BREAKS)}:make"
    words = ("capture", target, "--compare-speed", "--no-compare", "--no-trace", "--output-dir")
    done = reprokit(*words, tmp_path / "out", "--fail-on", "slower", "--json")
    assert (done.status, done.kind) == (1, "slower"), done.out + done.err
    verdict = done.json["verdict"]
    assert verdict["cause"] == "graph breaks" and "breaks.py:6" in verdict["work"]["line"]
    assert "(95 % interval" in verdict["reason"]
    assert done.json["signature"]["title"] == "slower: dynamo-trace | graph breaks"
    assert "graph break" in done.json["advice"]
    again = reprokit("pack", next((tmp_path / "out").glob("run-*")), "--json")
    assert (again.kind, again.json["verdict"]["reason"]) == ("slower", verdict["reason"])
