"""Failures with a known smallest program, for ``benchmarks/minimize.py``: each a script, its
environment and its minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MODELS = """
import torch
from torch import nn

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, d, heads, act):
        super().__init__()
        self.heads, self.act = heads, act
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.f1, self.f2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        batch, tokens, d = x.shape
        y = self.ln1(x)
        q, k, v = (w(y).view(batch, tokens, self.heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
        a = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        x = x + self.o((a @ v).transpose(1, 2).reshape(batch, tokens, d))
        return x + self.f2(self.act(self.f1(self.ln2(x))))

class MLP(nn.Module):
    def __init__(self, act, d=16):
        super().__init__()
        self.a, self.b, self.c, self.act = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), act

    def forward(self, x):
        x = torch.sigmoid(self.a(x))
        x = self.act(self.b(x) - 0.1)
        return torch.softmax(torch.tanh(self.c(x)), -1).amax(-1)

def stack(act, blocks=8):
    return nn.Sequential(*(Block(32, 4, act if i == blocks // 2 else torch.tanh) for i in range(blocks))).eval()

def chain(act, length=10):
    def f(x):
        for _ in range(length):
            x = torch.sin(x)
        x = act(x)
        for _ in range(length):
            x = torch.cos(x)
        return x
    return f
"""
RUN = "with torch.no_grad():\n    torch.compile({model}{options})({inputs})\n"
RELU_CPP = (
    "import torch._inductor.config\ntorch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY ="
    ' "compile_error"\n'
)
MLP_IN, STACK_IN, CHAIN_IN = "torch.randn(8, 16)", "torch.randn(2, 16, 32)", "torch.randn(20, 20)"


@dataclass(frozen=True)
class Failure:
    """One program that fails."""

    script: str
    minimum: int
    """Operators that its smallest program needs."""
    bug: dict[str, str] = field(default_factory=dict)
    """Environment of ``benchmarks/inject``."""
    after: str = "aot"
    """What PyTorch's minifier is told with TORCHDYNAMO_REPRO_AFTER."""
    level: int = 2
    is_hang: bool = False


def _of(
    model: str, inputs: str, minimum: int = 1, setup: str = "", options: str = "", **more: object
) -> Failure:
    script = MODELS + setup + RUN.format(model=model, inputs=inputs, options=options)
    return Failure(script, minimum, **more)  # type: ignore[arg-type]


SCATTERED = """
def scattered(x):
    for i in range(600):
        if i in (40, 310, 590):
            x = (torch.erf, torch.erfc, torch.digamma)[(40, 310, 590).index(i)](x.abs() + 1)
        else:
            x = torch.sin(x) if i % 2 else torch.cos(x)
    return x
"""
COND = """
def with_cond(x):
    x = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return torch.erf(x)
"""
PASS = """
import torch._inductor.config
def mine(graph):
    if any(n.target is torch.ops.aten.erf.default for n in graph.nodes):
        raise RuntimeError("a pass of the user")
torch._inductor.config.post_grad_custom_post_pass = mine
"""
BACKEND = """
def picky(gm, inputs):
    if any(n.target is torch.relu for n in gm.graph.nodes):
        raise RuntimeError("a backend of the user")
    return gm.forward
"""
TWO = (
    RELU_CPP
    + """
def two(x):
    x = torch.sin(torch.sin(torch.sin(x)))
    x = torch.cos(torch.relu(x))
    return torch.sin(torch.erf(x))
"""
)
DYNAMIC = """
x = torch.randn(8, 16)
torch._dynamo.mark_dynamic(x, 0)
"""
WINDOWED = """
class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rel = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        m = torch.full((8, 8), -10000.0)
        i = torch.arange(8)
        m[i.unsqueeze(0), i.unsqueeze(1)] = 0
        return torch.softmax(self.rel + m, dim=-1) @ x

net = nn.Sequential(Block(16, 2, torch.tanh), Block(16, 2, torch.tanh), Mixer(), Block(16, 2, torch.tanh)).eval()
"""
TRAIN = MODELS + "torch.compile(MLP(torch.relu))(torch.randn(8, 16)).sum().backward()\n"

FAILURES: dict[str, Failure] = {
    "chain, backend raises": _of(
        "chain(torch.relu)",
        CHAIN_IN,
        options=', backend="relu_compile_error_TESTING_ONLY"',
        after="dynamo",
    ),
    "8 blocks, backend raises": _of(
        "stack(torch.relu)",
        STACK_IN,
        options=', backend="relu_compile_error_TESTING_ONLY"',
        after="dynamo",
    ),
    "mlp, C++ does not compile": _of("MLP(torch.relu).eval()", MLP_IN, setup=RELU_CPP),
    "8 blocks, C++ does not compile": _of("stack(torch.relu)", STACK_IN, setup=RELU_CPP),
    "8 blocks, lowering raises": _of("stack(torch.erf)", STACK_IN, bug={"BUG": "raise"}),
    "mlp, lowering hangs": _of("MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "hang"}, is_hang=True),
    "mlp, lowering crashes": _of("MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "segv"}),
    "mlp, kernel aborts": _of(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "kernel-abort"}, level=3
    ),
    "mlp, kernel hangs": _of(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "kernel-hang"}, level=3, is_hang=True
    ),
    "two bugs": _of("two", CHAIN_IN, setup=TWO, bug={"BUG": "raise"}),
    "cond in the graph": _of("with_cond", CHAIN_IN, setup=COND, bug={"BUG": "raise"}),
    "custom pass raises": _of("MLP(torch.erf).eval()", MLP_IN, setup=PASS),
    "custom backend raises": _of(
        "MLP(torch.relu).eval()", MLP_IN, setup=BACKEND, options=", backend=picky", after="dynamo"
    ),
    "only with symbolic sizes": _of(
        "MLP(torch.erf).eval()", "x", setup=DYNAMIC, bug={"BUG": "raise-symbolic"}
    ),
    "only in backward": Failure(TRAIN, 1, {"BUG": "raise", "BUG_OP": "le"}),
    "only with options": _of(
        "MLP(torch.relu).eval()",
        MLP_IN,
        options=', options={"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}',
    ),
    "in half of the runs": _of("MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "raise-half"}),
    "three of 600 nodes": _of(
        "scattered", CHAIN_IN, 3, setup=SCATTERED, bug={"BUG": "raise-three"}
    ),
    "pytorch#196570, buried": _of("net", "torch.randn(2, 8, 16)", 6, setup=WINDOWED),
}
