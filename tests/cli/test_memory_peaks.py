"""The peak of the memory of a compiled program is compared with that of eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.reprokit_calls import reprokit

TWICE = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Twice(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def run(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    def forward(self, x, y):
        return self.run(x), self.run(y)


def make(width=256, layers=2, rows=32768):
    return Twice(width, layers), (torch.randn(rows, width), torch.randn(rows, width))
"""
"""pytorch#193193: the compiled backward keeps what several checkpointed blocks compute again."""
ALL = ("--weights", "fake", "--train", "--compare-memory", "--no-minimize", "--no-trace")


@pytest.mark.real("it compiles a program and measures it in eager, with fake tensors")
def test_a_compiled_program_that_needs_more_memory_is_reported(write: Any, tmp_path: Path) -> None:
    """Without running, the peak of the backward pass is compared with that of eager, and the
    tensors that checkpoints compute again are named with the user's line.
    """
    target = f"{write('twice.py', TWICE)}:make"
    words = (*ALL, "--no-ablate", "--fail-on", "peak-memory", "--output-dir", tmp_path / "out")
    done = reprokit("capture", "--json", target, *words)
    assert (done.status, done.kind) == (1, "peak-memory"), done.out + done.err
    assert done.json["signature"]["title"] == (
        "peak-memory: kernel-run | backward, recomputed for backward"
    )
    compiled, eager = done.json["memory"]["compiled"], done.json["memory"]["eager"]
    assert (compiled["source"], compiled["problem"]) == ("lifetimes", "")
    peaks = [use["phases"]["backward"]["peak_bytes"] for use in (compiled, eager)]
    assert peaks[0] > 1.15 * peaks[1]
    # forward: inputs, parameters, and of each traversal the input of each block and the result
    block, parameters = 32768 * 256 * 4, 2 * (2 * 256 * 1024 + 1024 + 256) * 4
    assert compiled["held_bytes"] == parameters + 2 * block
    line = next(n for n, row in enumerate(TWICE.splitlines(), 1) if "F.gelu" in row)
    tensors = compiled["phases"]["backward"]["tensors"]
    assert any(
        row["line"].endswith(f"twice.py:{line} in forward")
        and row["reason"] == "recomputed for backward"
        for row in tensors
    )
    assert f":{line} in forward: recomputed for backward" in done.json["verdict"]["reason"]


def test_the_memory_of_a_command_is_not_compared() -> None:
    """A command runs only once, so the option is refused in one line."""
    done = reprokit("capture", "--compare-memory", "--", "python", "x.py")
    assert done.status == 2
    assert "--compare-memory needs a factory" in done.err


@pytest.mark.long
def test_settings_that_bring_the_peak_down_are_named(write: Any, tmp_path: Path) -> None:
    """Each setting is measured, and those with which the peak is about that of eager avoid it."""
    target = f"{write('twice.py', TWICE)}:make"
    words = (*ALL, "--layers", "3", "--set", "rows=16384", "--output-dir", tmp_path / "out")
    done = reprokit("capture", "--json", target, *words)
    assert (done.status, done.kind) == (0, "peak-memory"), done.out + done.err
    steps = {step["name"]: step for step in done.json["ablation"]["steps"]}
    assert steps["no fusion"]["answer"] == "passes"
    assert steps["torch._inductor.config.allow_buffer_reuse = False"]["answer"] == "same"
    assert all(step["title"].endswith(" MB at its peak") for step in steps.values())
    assert "no fusion" in done.json["ablation"]["cures"]
    # the partitioner of Inductor, and not that of AOTAutograd
    assert steps['backend="aot_eager"']["answer"] == "passes"
    assert done.json["ablation"]["label"] == "module: pt2-dispatcher"
