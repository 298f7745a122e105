"""A name goes together with all that reads it."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from reprokit.core.reduce.passes import names, straight_line

PROGRAM = """
import torch

class Config:
    rate: float = 0.1
    steps: int = 3

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 5:
            print("often")
        return x * self.scale

config = Config()
model = Model()
net = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=config.rate)
history = []
for step in range(config.steps):
    with torch.no_grad():
        norm = sum(p.norm() for p in model.parameters())
    out = net(torch.ones(2))
    loss = out.sum()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if norm > 3:
        print(norm)
print(history)
"""


def keep(*words: str) -> Callable[[str], bool]:
    """Return a predicate that runs the program in eager, and needs some words."""

    def test(text: str) -> bool:
        if not all(word in text for word in words):
            return False
        try:
            exec(text.replace("torch.compile(", "("), {"__name__": "repro"})
        except Exception:
            return False
        return True

    return test


def test_a_variable_goes_with_all_that_reads_it() -> None:
    """The optimizer goes with its step, the loss with its history, and the counter with its test."""
    tried: list[str] = []
    test = keep("net(torch.ones(2))", "x * self.scale")

    def counted(text: str) -> bool:
        tried.append(text)
        return test(text)

    text = names.drop_names(ast.unparse(ast.parse(PROGRAM)), counted)
    for gone in ("optimizer", "history", "norm", "loss", "calls", "rate"):
        assert gone not in text
    assert "net(torch.ones(2))" in text and len(tried) < 25


@pytest.mark.parametrize("name", ["model", "net"])
def test_the_compiled_call_stays(name: str) -> None:
    """Nothing that torch.compile needs is proposed to go."""
    tried: list[str] = []
    names.drop_names(PROGRAM, lambda text: bool(tried.append(text)))
    assert tried and all("torch.compile(model)" in text for text in tried)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("for x in data:\n    print(1)\n    f(2)", "print(1)\nf(2)"),
        ("if data:\n    f(2)\nelse:\n    f(3)", "f(2)"),
        ("with data as y:\n    f(2)\n    f(y)", "f(2)"),
        ("while data:\n    f(2)", ""),
        ("x = data.y\nx.z = 1\nf(1)", "f(1)"),
        (
            "def g():\n    x = data\n    return 5\nf(1)",
            "def g():\n    x = data\n    return 5\nf(1)",
        ),
        ("try:\n    x = data\nfinally:\n    f(1)", "f(1)"),
        ("data += 1\nf(1)", "f(1)"),
    ],
)
def test_blocks_are_opened_when_their_head_goes(before: str, after: str) -> None:
    """The statements of a block stay, except what the head assigns. A different scope is kept."""
    text = f"data = 1\n{before}\n"
    tried: list[str] = []
    names.drop_names(text, lambda new: bool(tried.append(new)))
    assert any(new.strip().replace("\n\n", "\n") == after for new in tried)


def test_a_function_with_usual_names_is_inlined() -> None:
    """A variable with the name of a global gets a new name."""
    program = """
import torch
scale = 2
def build(model):
    loss = model
    return loss
def read():
    return scale
def main():
    model = torch.nn.Linear(2, 2)
    loss = build(model)
    torch.compile(loss)(torch.ones(2))
{}
main()
"""
    text = straight_line.straighten_program(program.format(""), lambda text: True)
    assert "def main" not in text
    clash = program.format("    scale = 3")
    text = straight_line.straighten_program(clash, lambda text: True)
    assert "def main" not in text and "scale = 2\n" in text and "scale_2 = 3\n" in text
