"""Failures of compiles that contain the user's own code: a target with about 300 nodes each, of
which the failure needs one.

The backend raises for a word in the graph, so that only a program with the user's code fails.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import torch

def picky(gm, inputs):
    names = [type(value).__name__ for value in inputs]
    for part in gm.modules():
        if isinstance(part, torch.fx.GraphModule):
            names += [str(node.target) for node in part.graph.nodes]
    if any(name.startswith("{word}") for name in names):
        raise NotImplementedError("{word} is not supported")
    return gm.forward
{setup}
def f(x):
    for _ in range({half}):
        x = torch.sin(x) + 1
    x = {call}
    for _ in range({half}):
        x = torch.cos(x) * 2
    return x
"""
SCRIPT = """
import os; os.utime(__file__, (4e9, 4e9))
torch.compile(f, backend=picky)({inputs})
"""
"""Changed copies of a script that opens a file are not run, so the recorded graph is reduced."""
FACTORY = """
def make():
    return {{"model": f, "calls": [(({inputs},), {{}})], "compile": {{"backend": picky}}}}
"""
"""A GPU is simulated only for factories."""
HALF_OF_THE_CHAIN = 75
"""Repetitions of two nodes on each side of the user's code."""


@dataclass(frozen=True)
class OwnCode:
    """One kind of the user's own code."""

    word: str
    """The start of the name of the node or class for which the backend raises."""
    setup: str
    call: str
    """The expression of ``x`` that uses the code."""
    keeps: str
    """A text that the minimal program contains."""
    inputs: str = "torch.randn(4, 8)"
    options: tuple[str, ...] = ()

    def program(self) -> str:
        """Return the text of the target."""
        return (HEAD + (FACTORY if self.options else SCRIPT)).format(
            word=self.word,
            setup=self.setup,
            call=self.call,
            half=HALF_OF_THE_CHAIN,
            inputs=self.inputs,
        )


CUSTOM_OP = """
import math
LIMIT = 2.0

def clipped(x):
    return x.clamp(-LIMIT, math.sqrt(LIMIT))

@torch.library.custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return clipped(x) * by

@scale.register_fake
def _(x, by=2.0):
    return torch.empty_like(x)

def setup(ctx, inputs, output):
    ctx.by = inputs[1]

def back(ctx, g):
    return g * ctx.by, None

scale.register_autograd(back, setup_context=setup)
"""
DEFINED = """
torch.library.define("mine::twice", "(Tensor x) -> Tensor")

@torch.library.impl("mine::twice", "cpu")
def twice(x):
    return x * 2

@torch.library.register_fake("mine::twice")
def _(x):
    return torch.empty_like(x)
"""
AUTOGRAD = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * 2 * x * ctx.factor, None
"""
SCAN = """
from torch._higher_order_ops.scan import scan

def total(carry, row):
    return carry + row, carry * row
"""
CHECKPOINT = """
from torch.utils.checkpoint import checkpoint

def part(x):
    return torch.sigmoid(torch.tanh(x))
"""
FLEX = """
from torch.nn.attention.flex_attention import flex_attention

bias = torch.randn(128)

def biased(score, batch, head, i, j):
    return score + torch.sigmoid(bias[j])

def picky(gm, inputs):
    for part in gm.modules():
        if part is not gm and isinstance(part, torch.fx.GraphModule):
            if any("sigmoid" in str(node.target) for node in part.graph.nodes):
                raise NotImplementedError("sigmoid in a score function is not supported")
    return gm.forward
"""
SUBCLASS = """
class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data, scale):
        self.data8, self.scale = data, scale

    def __tensor_flatten__(self):
        return ["data8", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["data8"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = lambda t: t.data8.to(t.scale.dtype) * t.scale if isinstance(t, Scaled) else t
        args, kwargs = torch.utils._pytree.tree_map(plain, (args, kwargs or {}))
        return func(*args, **kwargs)
"""
TRITON = """
import triton
import triton.language as tl

SHIFT: tl.constexpr = tl.constexpr(1)

@triton.jit
def act(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, x, x * SLOPE) + SHIFT

def configs():
    return [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)]

@triton.autotune(configs=configs(), key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def leaky(x_ptr, out_ptr, n, SLOPE: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = act(tl.load(x_ptr + at, mask=at < n), SLOPE)
    tl.store(out_ptr + at, y, mask=at < n)

def launched(x):
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    leaky[grid](x, out, x.numel(), SLOPE=0.1)
    return out
"""
TRITON_OP = (
    TRITON.replace("def launched(x):", "def plain(x):")
    + """
@torch.library.triton_op("mine::leaky", mutates_args={})
def launched(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    torch.library.wrap_triton(leaky)[grid](x, out, x.numel(), SLOPE=0.1)
    return out
"""
)
_ON_GPU = ("--gpu", "h100")
_GRAD = "torch.randn(4, 8, requires_grad=True)"

KINDS: dict[str, OwnCode] = {
    "custom_op": OwnCode("mine.scale", CUSTOM_OP, "scale(x, 3.0)", "torch.library.custom_op"),
    "library.define": OwnCode(
        "mine.twice", DEFINED, "torch.ops.mine.twice(x)", "torch.library.define"
    ),
    "autograd.Function": OwnCode(
        "autograd_function_apply",
        AUTOGRAD,
        "Square.apply(x, 3.0)",
        "torch.autograd.Function",
        inputs=_GRAD,
    ),
    "scan": OwnCode("scan", SCAN, "scan(total, x[0], x)[1]", "scan("),
    "checkpoint": OwnCode(
        "tag_activation_checkpoint",
        CHECKPOINT,
        "checkpoint(part, x, use_reentrant=False)",
        "checkpoint(",
        inputs=_GRAD,
    ),
    "flex attention": OwnCode(
        "flex_attention",
        FLEX,
        "flex_attention(x, x, x, score_mod=biased)",
        "score_mod",
        inputs="torch.randn(1, 2, 128, 16)",
    ),
    "tensor subclass": OwnCode(
        "Scaled",
        SUBCLASS,
        "x + 1",
        "class Scaled",
        inputs="Scaled(torch.ones(4, 8, dtype=torch.int8), torch.tensor(0.5))",
    ),
    "Triton kernel": OwnCode(
        "triton_kernel_wrapper",
        TRITON,
        "launched(x)",
        "@triton.jit",
        inputs='torch.randn(1000, device="cuda")',
        options=_ON_GPU,
    ),
    "triton_op": OwnCode(
        "mine.leaky",
        TRITON_OP,
        "launched(x)",
        "torch.library.triton_op",
        inputs='torch.randn(1000, device="cuda")',
        options=_ON_GPU,
    ),
}
