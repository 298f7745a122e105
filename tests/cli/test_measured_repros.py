"""Peaks of memory, growth over calls and slow calls become small programs that measure
themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.reprokit_calls import CallResult, reprokit

QUICK = ("--minimize", "--no-ablate", "--no-compare", "--no-trace")
PROGRAM = """
import torch

KEPT = []
SCALES = {{"first": 2.0, "second": 0.5}}

def culprit(args):
    {culprit}

def backend(graph, inputs):
    def run(*args):
        found = culprit(args)
        return graph.forward(*args)
    return run

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.noise(x[:4, :4]).sum()
        z = x * SCALES["first"]
        return z.sum() * SCALES["second"] + y

def make(rows={rows}):
    torch.manual_seed(0)
    return {{
        "model": Model(),
        "calls": [((torch.randn(rows, 1024),), {{}})],
        "compile": {{"backend": backend}},
    }}
"""


SMALL = """
import torch

SCALES = {"first": 2.0, "second": 0.5}

def function(x, noise):
    y = x * SCALES["first"]
    return y + noise.relu()

def make():
    return function, (torch.randn(4), torch.randn(4))
"""
"""Its cause is the overhead of a call."""


def capture(write: Any, folder: Path, culprit: str, rows: int, *words: str) -> CallResult:
    target = f"{write('program.py', PROGRAM.format(culprit=culprit, rows=rows))}:make"
    return reprokit("capture", "--json", target, *words, "--output-dir", folder, *QUICK)


def repro_of(done: CallResult, kind: str) -> str:
    """Return the proved program."""
    assert done.kind == kind, done.out + done.err
    minimized = done.json["minimized"]
    assert minimized and minimized["proof"]["answer"] == "same", done.json["missing"]
    text = Path(done.json["repro"]).read_text()
    assert "def once(" in text and "assert " in text
    return text


@pytest.mark.real("it reduces a program and proves it")
def test_a_peak_becomes_a_small_program(write: Any, tmp_path: Path) -> None:
    """The tensors are a thousandth of the original, and the ratio of the peaks is still above 80 %
    of the original excess.
    """
    copies = "return [a.repeat(4, 1) for a in args]"
    done = capture(write, tmp_path / "out", copies, 8192, "--compare-memory")
    text = repro_of(done, "peak-memory")
    assert "profile_memory=True" in text and "8192" not in text
    assert "noise" not in text and "SCALES" not in text


@pytest.mark.long
def test_growth_becomes_a_small_program(write: Any, tmp_path: Path) -> None:
    """The program counts the bytes of tensors after each 20 calls."""
    done = capture(write, tmp_path / "out", "KEPT.append(args[0][:2].clone())", 4, "--calls", "60")
    text = repro_of(done, "memory-growth")
    assert "o.nbytes for o in gc.get_objects()" in text
    assert "noise" not in text and "SCALES" not in text


@pytest.mark.long
def test_slow_calls_become_a_small_program(write: Any, tmp_path: Path) -> None:
    """The program times both functions in turns."""
    target = f"{write('program.py', SMALL)}:make"
    words = ("--compare-speed", "--output-dir", tmp_path / "out", *QUICK)
    done = reprokit("capture", "--json", target, *words)
    text = repro_of(done, "slower")
    assert "timeit.timeit(" in text and "sides = (" in text
    assert sum(word in text for word in ("SCALES", "relu")) == 1, "one operator is enough"
