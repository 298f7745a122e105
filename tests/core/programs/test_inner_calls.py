"""An inner function that the compiler traces is compiled alone."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from reprokit.core.reduce.project import inner_calls, origins
from reprokit.core.reduce.project.inner_calls import InnerCall

PROGRAM = """
from dataclasses import dataclass
import argparse
import torch
from torch import nn
SCALE = 2
SIZES = {}

@dataclass
class Config:
    width: int

class Inner(nn.Linear):
    def __init__(self, *sizes, config, **more):
        super().__init__(*sizes, **more)
        self.config = config
    def forward(self, x, mask=None):
        return scaled(super().forward(x))

def scaled(x):
    return x * SCALE

class Outer(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts
    def forward(self, x):
        return self.parts[0](x)

def main():
    args = argparse.ArgumentParser().parse_args()
    model = Outer([Inner(3, args.width, config=Config(4), bias=False)])
    step = torch.compile(model, fullgraph=True)
    for x in range(3):
        step(torch.randn(8, 3))
main()
"""
X = {"shape": [8, 3], "dtype": "torch.float32", "is_float": True}
NAMES = [function.name for function, _ in inner_calls.functions_of(ast.parse(PROGRAM))]
INNER = {
    "made": 0,
    "class": "Inner",
    "arguments": {
        "sizes": {"literal": "(3, 4)"},
        "config": {"made": -1, "class": "Config", "arguments": {"width": {"literal": "4"}}},
        "more": {"literal": "{'bias': False}"},
    },
}
NONE = {"literal": "None"}
CALLS = (
    InnerCall(NAMES.index("main"), {}),
    InnerCall(4, {"self": {}, "x": X}),  # its parts cannot be written
    InnerCall(1, {"self": INNER, "x": X, "mask": NONE}),
    InnerCall(NAMES.index("scaled"), {"x": X}),
)


def programs(traced: str) -> list[str]:
    return list(inner_calls.programs_of_calls(PROGRAM, CALLS, traced))


def test_a_module_is_made_and_compiled_alone() -> None:
    """The program has the class, what it needs, and the options of torch.compile, but neither the
    outer module nor the command line.
    """
    first = programs("forward")[0]
    assert "inner = Inner(3, 4, config=Config(width=4), bias=False)" in first
    assert first.endswith("x = torch.randn(8, 3)\ntorch.compile(inner, fullgraph=True)(x, None)\n")
    assert "SCALE = 2" in first and "def scaled(" in first and "class Config" in first
    assert not any(word in first for word in ("Outer", "argparse", "SIZES", "main"))


def test_the_function_that_the_compiler_traced_comes_first() -> None:
    """Functions that began later are inner ones, so they come before those that began earlier."""
    assert "torch.compile(scaled, fullgraph=True)(x)" in programs("scaled")[0]
    assert ["def scaled" in one for one in programs("forward")] == [True, True]
    assert "torch.compile(scaled" in programs("forward")[1]


@pytest.mark.parametrize("described", [{}, {"shape": [1]}, {"literal": "'a"}])
def test_an_argument_that_cannot_be_written_gives_no_program(described: dict[str, Any]) -> None:
    """Damaged rows and objects of libraries end no reduction."""
    calls = (InnerCall(1, {"self": INNER, "x": described, "mask": NONE}),)
    assert not list(inner_calls.programs_of_calls(PROGRAM, calls, "forward"))


def test_a_number_out_of_a_tensor_is_not_written() -> None:
    """It is neither an argument of a call that is made again, nor a setting."""
    program = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.width = 4
    def forward(self, x):
        return x * self.scale + self.width
def largest(x):
    return x.max().item()
def main():
    top = torch.randn(3).max().item()
    torch.compile(Scaled(top))(torch.randn(8, 3))
main()
"""
    made = {"made": 0, "class": "Scaled", "arguments": {"scale": {"literal": "1.5"}}}
    calls = (InnerCall(1, {"self": made, "x": X}),)
    assert not list(inner_calls.programs_of_calls(program, calls, "forward"))
    assert list(
        inner_calls.programs_of_calls(
            program.replace("torch.randn(3).max().item()", "1.5"), calls, "forward"
        )
    )
    recording = origins.recording_program(program, needs_calls=True)
    assert ", self.width)" in recording and ", self.scale)" not in recording
