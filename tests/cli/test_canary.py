"""``reprokit.canary()`` compares calls with eager, and the program behaves as without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

pytestmark = pytest.mark.real

STEPS = """
import collections, torch, reprokit
class State:
    count = 0
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.steps, self.seen, self.state = 0, [], State()
        self.last = torch.zeros(4)
    def forward(self, x, more):
        self.steps += 1
        self.seen.append(self.steps)
        self.state.count += 1
        more["calls"] = more.get("calls", 0) + 1
        note(self.steps)
        self.last = self.last + x.detach().mean(0)
        return torch.relu(self.norm(self.linear(x)))
notes = []
def note(step):
    notes.append(step)
def train(canary):
    torch._dynamo.reset()
    notes.clear()
    torch.manual_seed(0)
    net, more = Net(), {}
    model = torch.compile(net, backend="eager")
    model = canary(model)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4), more).square().mean()
        loss.backward()
        optimizer.step()
    tensors = [*net.state_dict().values(), net.last, torch.randn(1), loss.detach()]
    return [t.tolist() for t in tensors], net.steps, net.seen, net.state.count, more, list(notes)
plain, watched = train(lambda m: m), train(lambda m: reprokit.canary(m, every=2))
assert plain == watched, (plain, watched)
assert watched[1] == 6 and watched[4] == {"calls": 6}
print("unchanged")
"""
WRONG = """
import torch, reprokit
import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
def scale(x, factor):
    return torch.relu(x) * factor
compiled = reprokit.canary(torch.compile(scale), every=2)
for _ in range(5):
    out = compiled(torch.randn(4, 4), 2)
print(type(out).__name__)
"""
OFF = """
import torch, reprokit
kept, drop = torch.zeros(4), torch.nn.Dropout()
def writes(x):
    kept.add_(x)
    return x + 1
def draws(x):
    return drop(x)
def aliases(x, y):
    return x + y
def counts(x):
    global number
    number += 1
    return x + 1
number = 0
x = torch.ones(4)
for function, args in ((writes, (x,)), (draws, (x,)), (aliases, (x, x[:])), (counts, (x,))):
    compiled = reprokit.canary(torch.compile(function, backend="eager"), every=2)
    for _ in range(3):
        compiled(*args)
print(kept.tolist(), number)
"""


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text)
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_training_loop_is_the_same_with_a_canary(tmp_path: Path) -> None:
    """Results, random numbers, buffers, attributes, objects and arguments are those of each call
    once.
    """
    done = run(STEPS, tmp_path)
    assert done.stdout == "unchanged\n" and "canary" not in done.stderr, done.stderr
    assert not (tmp_path / "reprokit-out").exists()


def test_the_first_difference_is_written_as_a_call(tmp_path: Path) -> None:
    done = run(WRONG, tmp_path)
    assert done.stdout == "Tensor\n", done.stderr
    assert done.stderr.count("reprokit:") == 1
    assert "output of scale differs from eager in call 1; the call is in" in done.stderr
    (path,) = (tmp_path / "reprokit-out").iterdir()
    document = reprokit("capture", path, "--json", cwd=tmp_path).json
    assert document["kind"] == "wrong-result"
    assert "output of scale differs from eager in" in document["reason"]
    (program,) = document["programs"]
    assert program["text"].endswith("torch.compile(scale)(x, 2)\n")
    assert reprokit("capture", path, cwd=tmp_path).status == 1


def test_what_cannot_be_compared_safely_is_not(tmp_path: Path) -> None:
    done = run(OFF, tmp_path)
    assert done.stdout == "[3.0, 3.0, 3.0, 3.0] 3\n", done.stderr
    assert [row.partition("off: ")[2] for row in done.stderr.splitlines() if "canary" in row] == [
        "it writes to a tensor that is no argument and no buffer",
        "it draws random numbers, which differ in compiled code",
        "two of its arguments share memory",
        "it sets the variable number",
    ]
    assert not (tmp_path / "reprokit-out").exists()


def test_only_what_is_compiled_is_compared() -> None:
    import reprokit as package

    with pytest.raises(ValueError, match="is not compiled"):
        package.canary(test_only_what_is_compiled_is_compared)
