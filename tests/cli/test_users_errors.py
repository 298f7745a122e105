"""Errors of the user's own program are not blamed on torch, and its own line is named.

The programs are short forms of what strangers brought.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import CallResult, reprokit

SHAPES = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(9, 4)

    def forward(self, x):
        x = torch.flatten(x, 1)
        return self.fc1(x)

def train(model, data):
    return model(data).sum()

print(train(torch.compile(Net()), torch.ones(2, 4, 4)))
"""
WORKER = """
import torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        row = {'x': torch.ones(2)}
        return row['y']

if __name__ == "__main__":
    model = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    model(torch.ones(1, 2))
    for rows in torch.utils.data.DataLoader(Rows(), num_workers=1):
        model(rows)
"""
LEAVES = """
import sys, torch
torch.compile(torch.sin, backend="eager")(torch.ones(2))
sys.exit("the configuration has no data")
"""
MARKED = """
import torch

@torch.compile(backend="eager")
def double(rows):
    if rows.size(0) == 5:
        return rows * 2
    return rows + 1

rows = torch.ones(5)
torch._dynamo.mark_dynamic(rows, 0)
double(rows)
"""
BRANCH = """
import torch

@torch.compile(backend="eager", fullgraph=True)
def clip(x):
    if x.sum() > 0:
        return x * 2
    return x - 1

clip(torch.ones(3))
"""
OPTIMIZER = """
import torch

layer = torch.nn.Linear(2, 2)
adam = torch.optim.Adam(layer.parameters())

@torch.compile(backend="eager", fullgraph=True)
def step():
    adam.step()

layer(torch.ones(1, 2)).sum().backward()
step()
"""
INDEX = """
import torch

table = torch.nn.Embedding(65, 4)
look_up = torch.compile(lambda ids: table(ids).sum(1).sin())
look_up(torch.randint(0, 65, (64, 8)))
look_up(torch.full((64, 8), 70))
"""


CALLED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.index_select(x, 0, torch.tensor([2]))

model = Model()
with torch.no_grad():
    print(torch.compile(model)(torch.randn(2, 2)))
"""
"""A kernel checks the index, with a message of its own, and its stack has no line of the model;
pytorch#121251.
"""


def capture(text: str, folder: Path) -> CallResult:
    (folder / "train.py").write_text(text)
    words = ("capture", "--no-minimize", "--output-dir", "out", "--", sys.executable, "train.py")
    return reprokit(*words, cwd=folder, env=clean_environ(REPROKIT_ABLATE="1"))


@pytest.mark.real
@pytest.mark.parametrize(
    ("text", "status", "facts"),
    [
        (
            SHAPES,
            1,
            [
                "error-in-eager: The target fails without torch.compile too.",
                "mat1 and mat2 shapes cannot be multiplied (2x16 and 9x4)",
                "train.py:11: return self.fc1(x)",
                "your program",
                "reprokit show",
            ],
        ),
        (
            MARKED,
            1,
            [
                "exception in guards: ConstraintViolationError was raised.",
                "train.py:6: if rows.size(0) == 5:",
                "your program: The program marks L['rows'].size()[0] as dynamic",
                "`torch._dynamo.maybe_mark_dynamic(rows, 0)` instead of",
                "reprokit show",
            ],
        ),
        (
            BRANCH,
            1,
            [
                "graph-break in dynamo-trace: `fullgraph=True` is set, and the graph breaks.",
                "train.py:6: if x.sum() > 0:",
                "your program: Dynamo's message calls this graph break fundamental",
                "avoid it   `if x.sum() > 0:` moved before the compiled function or fullgraph=False",
                "reprokit show",
            ],
        ),
        (
            OPTIMIZER,
            1,
            [
                "graph-break in dynamo-trace",
                "train.py:9 in step: adam.step()",
                "torch itself asks for",
            ],
        ),
        (
            INDEX,
            1,
            [
                "error-in-eager: The target fails without torch.compile too",
                "IndexError: index out of range in self",
                "train.py:5",
                "your program",
            ],
        ),
        (
            CALLED,
            1,
            [
                "error-in-eager: The target fails without torch.compile too",
                "IndexError: index out of range in self",
                "your program",
            ],
        ),
        (
            WORKER,
            1,
            [
                "error-in-eager: The target fails without torch.compile too",
                "KeyError: Caught KeyError in DataLoader worker process 0: 'y'",
                "train.py:10 in __getitem__: return row['y']",
                "your program",
            ],
        ),
        (
            LEAVES,
            1,
            [
                "The target fails without torch.compile too: exit status 1",
                "last line on stderr: the configuration has no data",
            ],
        ),
    ],
    ids=["shapes", "marked", "branch", "optimizer", "index", "called", "worker", "leaves"],
)
def test_the_error_of_a_user(text: str, status: int, facts: list[str], tmp_path: Path) -> None:
    """The summary says what happened, where, whose it is and what to do."""
    done, at = capture(text, tmp_path), 0
    assert done.status == status, done.out + done.err
    for fact in facts:
        assert fact in done.out[at:], f"{fact!r} is not in its place:\n{done.out}"
        at = done.out.index(fact, at)
    assert "caused by  torch" not in done.out
    assert "/_reprokit/" not in done.err  # the program prints its traceback as without reprokit
