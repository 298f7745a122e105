"""Failures with a known smallest program: a script, its environment and the operators that the
smallest program needs.
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
    """Operators that the smallest known program needs."""
    bug: dict[str, str] = field(default_factory=dict)
    """Variables of an injected bug (see ``cases/inject``)."""
    after: str = "aot"
    """TORCHDYNAMO_REPRO_AFTER for PyTorch's minifier."""
    level: int = 2
    """TORCHDYNAMO_REPRO_LEVEL for PyTorch's minifier."""
    is_hang: bool = False
    is_flaky: bool = False
    """The failure shows in some of the runs."""
    is_exported: bool = False
    """The compiler is entered through torch.export and AOTInductor."""


def _compiled(
    model: str, inputs: str, minimum: int = 1, setup: str = "", options: str = "", **fields: object
) -> Failure:
    script = MODELS + setup + RUN.format(model=model, inputs=inputs, options=options)
    return Failure(script, minimum, **fields)  # type: ignore[arg-type]


RUN_EXPORTED = """
inputs = ({inputs},)
package = torch._inductor.aoti_compile_and_package(torch.export.export({model}, inputs))
torch._inductor.aoti_load_package(package)(*inputs)
"""


def _exported(model: str, inputs: str, setup: str = "", **fields: object) -> Failure:
    script = MODELS + setup + RUN_EXPORTED.format(model=model, inputs=inputs)
    return Failure(script, 1, is_exported=True, **fields)  # type: ignore[arg-type]


def scattered_failure(nodes: int) -> Failure:
    """Return a failure of a chain of ``nodes`` operators that needs three different ones of
    them.
    """
    special = {nodes // 15: "erf", nodes // 2: "erfc", nodes - 10: "digamma"}
    program = f"""
def scattered(x):
    for i in range({nodes}):
        if i in {sorted(special)}:
            x = getattr(torch, {special}[i])(x.abs() + 1)
        else:
            x = torch.sin(x) if i % 2 else torch.cos(x)
    return x
"""
    return _compiled("scattered", CHAIN_IN, 3, setup=program, bug={"BUG": "raise-three"})


COND = """
def with_cond(x):
    x = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return torch.erf(x)
"""
PASS = """
import torch._inductor.config
def user_pass(graph):
    if any(n.target is torch.ops.aten.erf.default for n in graph.nodes):
        raise RuntimeError("a pass of the user")
torch._inductor.config.post_grad_custom_post_pass = user_pass
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
    "chain, backend raises": _compiled(
        "chain(torch.relu)",
        CHAIN_IN,
        options=', backend="relu_compile_error_TESTING_ONLY"',
        after="dynamo",
    ),
    "8 blocks, backend raises": _compiled(
        "stack(torch.relu)",
        STACK_IN,
        options=', backend="relu_compile_error_TESTING_ONLY"',
        after="dynamo",
    ),
    "mlp, C++ does not compile": _compiled("MLP(torch.relu).eval()", MLP_IN, setup=RELU_CPP),
    "8 blocks, C++ does not compile": _compiled("stack(torch.relu)", STACK_IN, setup=RELU_CPP),
    "8 blocks, lowering raises": _compiled("stack(torch.erf)", STACK_IN, bug={"BUG": "raise"}),
    "mlp, lowering hangs": _compiled(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "hang"}, is_hang=True
    ),
    "mlp, lowering crashes": _compiled("MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "segv"}),
    "mlp, kernel aborts": _compiled(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "kernel-abort"}, level=3
    ),
    "mlp, kernel hangs": _compiled(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "kernel-hang"}, level=3, is_hang=True
    ),
    "two bugs": _compiled("two", CHAIN_IN, setup=TWO, bug={"BUG": "raise"}),
    "cond in the graph": _compiled("with_cond", CHAIN_IN, setup=COND, bug={"BUG": "raise"}),
    "custom pass raises": _compiled("MLP(torch.erf).eval()", MLP_IN, setup=PASS),
    "custom backend raises": _compiled(
        "MLP(torch.relu).eval()", MLP_IN, setup=BACKEND, options=", backend=picky", after="dynamo"
    ),
    "only with symbolic sizes": _compiled(
        "MLP(torch.erf).eval()", "x", setup=DYNAMIC, bug={"BUG": "raise-symbolic"}
    ),
    "only in backward": Failure(TRAIN, 1, {"BUG": "raise", "BUG_OP": "le"}),
    "only with options": _compiled(
        "MLP(torch.relu).eval()",
        MLP_IN,
        options=', options={"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}',
    ),
    "in half of the runs": _compiled(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "raise-half"}, is_flaky=True
    ),
    "three of 600 nodes": scattered_failure(600),
    "pytorch#196570, buried": _compiled("net", "torch.randn(2, 8, 16)", 6, setup=WINDOWED),
}

EXPORTED_FAILURES: dict[str, Failure] = {
    "mlp, lowering raises": _exported("MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "raise"}),
    "8 blocks, lowering raises": _exported("stack(torch.erf)", STACK_IN, bug={"BUG": "raise"}),
    "mlp, lowering hangs": _exported(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "hang"}, is_hang=True
    ),
    "mlp, lowering crashes": _exported(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "segv"}, level=3
    ),
    "mlp, kernel aborts": _exported(
        "MLP(torch.erf).eval()", MLP_IN, bug={"BUG": "kernel-abort"}, level=3
    ),
}
"""Failures of programs that AOTInductor compiles."""
