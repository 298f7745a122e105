"""The calls that were compiled again become a program."""

from __future__ import annotations

import pytest

from reprokit.core.reported.recompile_programs import program_of_recompiles

MODULE = """
import torch
class Step(torch.nn.Module):
    def forward(self, x, *, mode=None):
        self.step += 1
        return x * self.step
step = Step.__new__(Step)
step.step = 2
x = torch.randn(2, 3)
with torch.no_grad():
    torch.compile(step)(x, mode='a')
"""
FUNCTION = """
import torch
def scale(x, name, y):
    return x * len(name)
x = torch.randint(0, 2, (4, 5))
y = torch.randn(6).as_strided((2, 3), (1, 2))
torch.compile(scale, dynamic=False)(x, 'ccc', y)
"""
GLOBAL = """
import torch
COUNT = 2
config = Config()
def scale(x):
    return x * COUNT + config.steps
x = torch.randn(3)
torch.compile(scale)(x)
"""
COMMENT = "      # self.step += 1  # a.py:10 in forward (HINT: b == c)"


@pytest.mark.parametrize(
    ("call", "guards", "rows"),
    [
        (
            MODULE,
            [f"0/0: self.step == 0{COMMENT}", f"0/1: self.step == 1{COMMENT}"],
            [
                "    compiled = torch.compile(step)",
                "    for value in [0, 1, 2]:",
                "        step.step = value",
                "        compiled(x, mode='a')",
            ],
        ),
        (
            MODULE,
            ["0/0: mode == None", "0/1: mode == 'b'"],
            ["    for value in [None, 'b']:", "        compiled(x, mode=value)"],
        ),
        (
            FUNCTION,
            ["0/0: name == 'a'   # x", "0/1: name == 'b b'   # x"],
            ["for value in ['a', 'b b']:", "    compiled(x, value, y)", "compiled(x, 'ccc', y)"],
        ),
        (
            FUNCTION,
            ["0/0: tensor 'x' size mismatch at index 1. expected 2, actual 3"],
            ["for value in [2]:", "    compiled(torch.randint(0, 2, (4, value)), 'ccc', y)"],
        ),
        (
            FUNCTION,
            ["0/0: tensor 'y' dtype mismatch. expected Double, actual Float"],
            ["for value in [torch.float64]:", "    compiled(x, 'ccc', y.to(value))"],
        ),
        (
            GLOBAL,
            ["0/0: G['COUNT'] == 0   # x", "0/1: G['COUNT'] == 1   # x"],
            ["for value in [0, 1, 2]:", "    COUNT = value", "    compiled(x)"],
        ),
        (
            GLOBAL,
            ["0/0: G['config'].steps == 5"],
            ["for value in [5]:", "    config.steps = value", "    compiled(x)"],
        ),
    ],
)
def test_each_call_has_its_value(call: str, guards: list[str], rows: list[str]) -> None:
    text = program_of_recompiles(call, guards)
    lines = text.splitlines()
    places = [lines.index(row) for row in rows]
    assert places == sorted(places) and "torch.compile(step)(x" not in text


@pytest.mark.parametrize(
    ("call", "guards"),
    [
        (FUNCTION, []),
        (FUNCTION, ["0/0: G['COUNT'] == 1"]),
        (GLOBAL, ["0/0: G['COUNT'] == 1", "0/1: COUNT == 1"]),
        (FUNCTION, ["0/0:  == 1"]),
        (
            FUNCTION,
            ["0/0: name == 'a'", "0/1: tensor 'x' dtype mismatch. expected Int, actual Long"],
        ),
        (FUNCTION, ["0/0: name == open('/etc/passwd')"]),
        (FUNCTION, ["0/0: name == 1; import os"]),
        (FUNCTION, ["0/0: other == 1"]),
        (FUNCTION, ["0/0: tensor 'x' size mismatch at index 9. expected 2, actual 3"]),
        (FUNCTION, ["0/0: tensor 'y' size mismatch at index 1. expected 2, actual 3"]),
        (FUNCTION, ["0/0: tensor 'x' dtype mismatch. expected Rare, actual Float"]),
        ("x = 1", ["0/0: name == 'a'"]),
        ("print(1)(2)", ["0/0: name == 'a'"]),
        ("", ["0/0: name == 'a'"]),
        ("not python (", ["0/0: name == 'a'"]),
    ],
)
def test_doubt_makes_no_program(call: str, guards: list[str]) -> None:
    assert program_of_recompiles(call, guards) == ""
