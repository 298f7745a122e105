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
STEP = """
import os, random, numpy, torch, reprokit
class Keys(dict):
    def __setitem__(self, key, value):
        super().__setitem__("p:" + key, value)
def program(canary):
    torch._dynamo.reset()
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(0)
    model, state, array = torch.nn.Linear(4, 4), Keys(a=1), numpy.ones(2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.register_forward_hook(lambda *args: state.update(b=len(state)))
    calls = 0
    def step(x, rows):
        nonlocal calls
        calls += 1
        array[0] += 1
        model.weight.data = model.weight.data * 0.5
        optimizer.zero_grad()
        loss = (model(x) * random.random() + rows.sum()).sum()
        loss.backward()
        optimizer.step()
        return loss
    step = canary(torch.compile(step, backend="eager"))
    opened = len(os.listdir("/proc/self/fd"))
    raises = canary(torch.compile(lambda x: x @ x, backend="eager"))
    for _ in range(20):
        try:
            raises(torch.ones(2, 3))
        except Exception:
            pass
    assert len(os.listdir("/proc/self/fd")) <= opened + 1
    losses = [step(torch.randn(2, 4), torch.ones(3)).item() for _ in range(4)]
    grads = model.weight.grad.tolist()
    return losses, grads, model.weight.tolist(), dict(state), array.tolist(), calls, torch.rand(1), random.random()
plain, watched = program(lambda f: f), program(lambda f: reprokit.canary(f, every=1))
assert plain == watched, (plain, watched)
print("unchanged")
"""
RANDOM = """
import torch, reprokit
drop = torch.nn.Dropout()
compiled = reprokit.canary(torch.compile(lambda x: drop(x), backend="eager"), every=1)
for _ in range(3):
    compiled(torch.ones(4))
"""
IN_PLACE = """
import torch, reprokit
import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2)
model = Net()
model.compile()
assert reprokit.canary(model, every=5) is model
with torch.no_grad():
    for _ in range(2):
        model(torch.randn(8, 4))
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


def test_side_effects_of_a_step_happen_once(tmp_path: Path) -> None:
    """Those of hooks, generators of Python and NumPy, assigned data, gradients and optimizers."""
    done = run(STEP, tmp_path)
    assert done.stdout == "unchanged\n", done.stderr


def test_a_call_that_draws_random_numbers_is_not_compared(tmp_path: Path) -> None:
    """This is said once, and no difference is reported."""
    done = run(RANDOM, tmp_path)
    assert done.stderr.count("reprokit: the canary cannot compare call") == 1, done.stderr
    assert "it draws random numbers, which differ in compiled code" in done.stderr
    assert not (tmp_path / "reprokit-out").exists()


def test_a_module_that_is_compiled_in_place_is_compared(tmp_path: Path) -> None:
    done = run(IN_PLACE, tmp_path)
    assert "output of Net differs from eager in call 1" in done.stderr, done.stderr


SECOND_FORK_FAILS = """
import os, torch, reprokit
real, first = os.fork, os.getpid()
def fork():
    if os.getpid() != first:
        raise BlockingIOError(11, "no more processes")
    return real()
os.fork = fork
compiled = reprokit.canary(torch.compile(lambda x: x + 1, backend="eager"), every=1)
for _ in range(2):
    compiled(torch.ones(2))
print("goes on")
"""
IGNORES_CHILDREN = """
import signal, torch, reprokit
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
compiled = reprokit.canary(torch.compile(lambda x: x + 1, backend="eager"), every=1)
compiled(torch.ones(2))
print("goes on")
"""


@pytest.mark.parametrize("text", [SECOND_FORK_FAILS, IGNORES_CHILDREN])
def test_the_program_goes_on_once(text: str, tmp_path: Path) -> None:
    """Also if no second process can be started, or the program does not wait for children."""
    done = run(text, tmp_path)
    assert done.stdout == "goes on\n" and not done.stderr, done.stderr


def test_only_what_is_compiled_is_compared() -> None:
    import reprokit as package

    with pytest.raises(ValueError, match="is not compiled"):
        package.canary(test_only_what_is_compiled_is_compared)
