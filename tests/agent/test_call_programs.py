"""A call is written as a program that makes the same modules and calls the same functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import clean_environ

pytestmark = pytest.mark.real

DEFINITIONS = """
import math
import threading
from dataclasses import dataclass

import torch
import torch.nn as nn

import reprokit

OFFSET = torch.ones(4)
FACTOR = 2.5
LOCK = threading.Lock()

@dataclass
class Config:
    count: int = 3

class Settings:
    def __init__(self, name):
        self.name, self.scale = name, 0.5

def helper(x):
    return x * FACTOR + math.sqrt(4.0) + OFFSET

def count_calls(module, args):
    return (args[0] * 10,)

class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.config = Config(2)
        self.settings = Settings("mine")
        self.lock = LOCK
        self.register_buffer("mask", torch.ones(size), persistent=False)

    def unused(self):
        with LOCK:
            return open("/etc/hostname").read()

    def forward(self, x):
        return helper(self.linear(x)) * self.mask * self.config.count * self.settings.scale

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(4) for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(4), nn.Dropout(0.5))
        self.attention = nn.MultiheadAttention(4, 2)
        self.tied = self.blocks[0]
        self.parent = [self]
        self.blocks[1].register_forward_pre_hook(count_calls)

    def forward(self, x, *, flag=False):
        for block in self.blocks:
            x = block(x)
        x = self.tied(x) if flag else x
        return self.head(x) + self.attention(x, x, x)[0]
"""


def run(text: str, folder: Path, script: str = "-") -> str:
    """Run a text, or else a script, and return what it prints."""
    done = subprocess.run(
        [sys.executable, script],
        input=text,
        cwd=folder,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def saved(rows: str, folder: Path) -> str:
    """Return the program that ``reprokit.save`` writes in a program with the definitions."""
    (folder / "model.py").write_text(DEFINITIONS + rows)
    return Path(run("", folder, "model.py").strip()).read_text()


def test_a_module_is_made_without_its_constructor(tmp_path: Path) -> None:
    """It has the structure, state and hooks of the original; what has no text is left out, and a
    method that uses it too.
    """
    text = saved(
        "net = torch.compile(Net().eval().to(torch.float64), fullgraph=True)\n"
        "inputs = torch.randn(3, 4, dtype=torch.float64).t().contiguous().t()\n"
        "print(reprokit.save(net, [inputs], {'flag': True}))\n",
        tmp_path,
    )
    assert "def unused" not in text and "# without Block.unused: " in text
    assert "# without block.lock: " in text
    assert ".as_strided((3, 4), (1, 3))" in text and "torch.compile(net)(x, flag=True)" in text
    answer = run(
        text.replace("torch.compile(net)", "net")
        + "assert net.tied is net.blocks[0] and net.parent[0] is net and not net.training\n"
        "assert net.blocks[1].mask.dtype == torch.float64\n"
        "print(len(net.state_dict()), len(net.blocks[1]._forward_pre_hooks),"
        " net.blocks[0].config.count, net.blocks[0].settings.scale, net(x).shape)\n",
        tmp_path,
    )
    original = run(
        DEFINITIONS
        + "net = Net()\nprint(len(net.state_dict()), 1, 2, 0.5, net(torch.randn(3, 4)).shape)\n",
        tmp_path,
    )
    assert answer == original


def test_settings_of_the_call_are_kept(tmp_path: Path) -> None:
    """Grad mode, autocast, default dtype and configuration are those of the call, a closure has its
    values, and values of tensors are written only if that is asked for.
    """
    rows = """
import torch._dynamo
torch._dynamo.config.capture_scalar_outputs = True
def outer(power):
    def inner(x, index, *rest, **more):
        return x[index] ** power + sum(rest) + more["bias"]
    return inner
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    print(reprokit.save(outer(3), [torch.ones(9), torch.tensor([7, 8]), 1, 2.5],
                        {"bias": True}, values=VALUES))
"""
    text = saved(rows.replace("VALUES", "True"), tmp_path)
    assert "torch._dynamo.config.capture_scalar_outputs = True" in text
    assert "\npower = 3\n" in text and "x[index] ** power" in text
    assert "torch.tensor([7, 8], dtype=torch.int64)" in text
    assert "with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):" in text
    assert "torch.compile(inner)(x, index, 1, 2.5, bias=True)" in text
    run(text, tmp_path)
    assert "[7, 8]" not in saved(rows.replace("VALUES", "False"), tmp_path)


ODD = """
import collections, enum, logging
from typing import NamedTuple

log = logging.getLogger("a.b")
class Pair(NamedTuple):
    x: int
    y: int

@dataclass(frozen=True)
class Frozen:
    size: int = 3

@dataclass
class Checked:
    size: int = 3
    def __post_init__(self):
        self.size += 1

class Slow:
    __slots__ = ("kept",)
    def __getattr__(self, name):
        raise SystemExit("called")

class Color(enum.Flag):
    RED = 1
    BLUE = 2

class Head(nn.Module):
    def __init__(self, owner):
        super().__init__()
        self.owners = [owner]
        self.register_forward_hook(owner.seen)

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.loss = nn.MSELoss(reduction="none")
        self.part = nn.Linear(4, 4)
        self.part.bias.requires_grad_(False)
        self.last = nn.Linear(4, 4).to(memory_format=torch.preserve_format)
        self.last.weight = nn.Parameter(torch.randn(4, 4).t())
        self.modules_by_name = nn.ModuleDict({"a": nn.Dropout()}).eval()
        self.frozen, self.checked, self.slow = Frozen(4), Checked(1), Slow()
        self.slow.kept = 7
        self.options = collections.OrderedDict(a=1)
        self.pair, self.color = Pair(1, 2), Color.RED | Color.BLUE
        self.names = frozenset({1})
        self.head = Head(self)
        setattr(self, "class", 5)

    def seen(self, module, args, output):
        return output

    def forward(self, ids, **more):
        log.debug("forward")
        return self.out(self.embed(ids))
"""


def test_unusual_objects_are_the_same(tmp_path: Path) -> None:
    """Shared, frozen and strided weights, arguments that torch does not print, hooks of a parent,
    frozen dataclasses, loggers and names that are keywords. No property and no ``__getattr__`` is
    called.
    """
    state = (
        "print(len(list(odd.parameters())), odd.out.weight is odd.embed.weight, odd.loss.reduction,"
        " odd.part.bias.requires_grad, odd.part.weight.requires_grad, odd.last.weight.stride(),"
        " odd.modules_by_name.training, odd.modules_by_name['a'].training, odd.frozen, odd.checked,"
        " odd.slow.kept, odd.options, odd.pair, odd.color, odd.names, odd.head.owners[0] is odd,"
        " len(odd.head._forward_hooks), getattr(odd, 'class'))\n"
    )
    text = saved(
        ODD + "odd = Odd()\nprint(reprokit.save(odd, [torch.ones(2, dtype=torch.int64)],"
        " {'class': 1}))\n",
        tmp_path,
    )
    plain = text.replace("torch.compile(odd)(", "odd(")
    assert "logging.getLogger('a.b')" in text and len(text) < 5_000 and "**{'class': 1}" in text
    assert run(plain + state, tmp_path) == run(
        DEFINITIONS + ODD + "odd = Odd()\n" + state, tmp_path
    )


def test_a_large_value_costs_little(tmp_path: Path) -> None:
    """A text of 100 MB is refused before it is copied."""
    rows = """
import resource
text = "x" * 100_000_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    reprokit.save(lambda x, y: x, [torch.ones(2), [text] * 50])
except ValueError as problem:
    print(problem)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
"""
    script = tmp_path / "model.py"
    script.write_text(DEFINITIONS + rows)
    said = run(f"exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))", tmp_path)
    assert "a text of 100000000 characters is too long" in said


def test_operators_and_transforms_are_written(tmp_path: Path) -> None:
    """An operator of the user's is defined, and a function of ``torch.func`` is made again."""
    rows = """
@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
def f(x):
    return (x ** 3).sum()
def both(x):
    return torch.ops.mine.twice(x) + torch.vmap(torch.func.hessian(f), in_dims=1)(x).sum()
print(reprokit.save(both, [torch.ones(2, 3)]))
"""
    text = saved(rows, tmp_path)
    assert "@torch.library.custom_op('mine::twice', mutates_args=())" in text
    run(text.replace("torch.compile(both)", "both"), tmp_path)
    wrapped = (
        "print(reprokit.save(torch.vmap(torch.func.hessian(f), in_dims=1), [torch.ones(2, 3)]))"
    )
    text = saved(rows.rpartition("print")[0] + wrapped, tmp_path)
    assert "torch.func.vmap(torch.func.jacfwd(torch.func.jacrev(f)), in_dims=1)" in text
    run(text.replace("torch.compile(", "("), tmp_path)  # compiling it fails in torch


def test_a_call_without_a_text_is_refused(tmp_path: Path) -> None:
    rows = """
try:
    reprokit.save(lambda x: LOCK.acquire(), [torch.ones(2)])
except ValueError as problem:
    print(problem)
import os
assert not os.path.exists("reprokit-out")
"""
    script = tmp_path / "model.py"
    script.write_text(DEFINITIONS + rows)
    said = run(f"exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))", tmp_path)
    assert said.startswith("the call cannot be saved: ") and "lock" in said


def test_a_class_of_an_installed_package_is_imported(tmp_path: Path) -> None:
    text = saved(
        "from transformers import BertConfig, BertModel\n"
        "config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2,"
        " intermediate_size=8, vocab_size=9)\n"
        "print(reprokit.save(BertModel(config).eval(), [torch.ones(1, 4, dtype=torch.int64)]))\n",
        tmp_path,
    )
    assert "from transformers.models.bert.modeling_bert import BertModel\n" in text
    assert "class Bert" not in text
    assert "(1, 4, 8)" in run(
        text.replace("torch.compile(bertmodel)(input_ids)", "print(tuple(bertmodel(input_ids)[0].shape))"),
        tmp_path,
    )  # fmt: skip
