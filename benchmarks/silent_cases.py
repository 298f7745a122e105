"""Public failures of torch 2.13 on CPU that stop no program, a factory each; for
benchmarks/silent.py.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def acosh_large() -> Any:
    """pytorch#183768: x * x overflows in the generated code."""
    return torch.acosh, (torch.full((20,), 1e30),)


def hessian_trace() -> Any:
    """pytorch#190855: a constant is added to almost every entry."""

    def energy(t):
        return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(3, dtype=t.dtype)))

    x = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.95]], dtype=torch.float64)
    return torch.func.hessian(energy), (x,)


def shift_clone() -> Any:
    """pytorch#197829: the clone is dropped."""

    def fn(x):
        x[1:] = x[:-1].clone()
        return x

    return fn, (torch.arange(24.0).reshape(6, 4),)


def dtype_view() -> Any:
    """pytorch#198101: a read through a dtype view is moved behind a later write."""

    def fn(x):
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)

    return fn, (torch.arange(-12, 12, dtype=torch.int64).reshape(4, 6),)


def copy_then_mutate() -> Any:
    """pytorch#198131: only the changed argument is wrong."""

    def fn(dst, src):
        dst[0:, :] = src[0:, :]
        src.add_(1)
        return src

    return fn, (torch.zeros(3, 4), torch.arange(12.0).view(3, 4))


def gelu_inf() -> Any:
    """Eager gives NaN where inf is right: no fault of the compiler."""
    return F.gelu, (torch.full((32,), float("inf")),)


class Cell(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.i, self.h, self.n = nn.Linear(d, 3 * d), nn.Linear(d, 3 * d), nn.LayerNorm(d)

    def forward(self, x, h):
        a, b, c = self.i(self.n(x)).chunk(3, -1)
        p, q, r = self.h(h).chunk(3, -1)
        z, s = torch.sigmoid(a + p), torch.sigmoid(b + q)
        return (1 - z) * torch.tanh(c + s * r) + z * h


class Streaming(nn.Module):
    def __init__(self, d=12, layers=8):
        super().__init__()
        self.cells = nn.ModuleList([Cell(d) for _ in range(layers)])
        self.mix, self.out = nn.Linear(d, d), nn.Linear(d, 4)

    def forward(self, x, history):
        h = torch.zeros_like(x)
        for cell in self.cells:
            h = cell(x, h) + x
            x = F.silu(h)
        history[1:] = history[:-1].clone()
        weights = torch.softmax(self.mix(history).sum(-1), 0)
        return self.out(x + (weights[:, None] * history).sum(0))


def shift_buried() -> Any:
    """pytorch#197829 in a recurrent model of eight cells."""
    torch.manual_seed(0)
    return Streaming().eval(), (torch.randn(3, 12), torch.arange(72.0).reshape(6, 12) / 50)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1)
        )
        a = torch.softmax(q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5, -1)
        x = x + self.o((a @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, d=16, heads=2, layers=5):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        self.head = nn.Linear(d, 7)

    def forward(self, x, previous, position):
        for block in self.blocks:
            x = block(x)
        previous[0:, :] = position[0:, :]
        position.add_(1)
        return self.head(x) + position.mean()


def copy_buried() -> Any:
    """pytorch#198131 in a transformer of five blocks."""
    torch.manual_seed(0)
    return Decoder().eval(), (
        torch.randn(2, 8, 16),
        torch.zeros(3, 4),
        torch.arange(12.0).view(3, 4),
    )


class Processing(nn.Module):
    FUNCTIONS = (
        torch.sin,
        torch.cos,
        torch.tan,
        torch.tanh,
        torch.exp,
        torch.sigmoid,
        torch.relu,
        torch.abs,
        torch.neg,
        torch.square,
        torch.sinh,
        torch.cosh,
    )

    def __init__(self, number):
        super().__init__()
        self.linear, self.processor = nn.Linear(4, 4), self.FUNCTIONS[number]

    def forward(self, x):
        return self.processor(self.linear(x))


def processor_identity() -> Any:
    """pytorch#163329: one compiled function over many instances, each with a function of its
    own.
    """
    torch.manual_seed(0)
    calls = [((Processing(i), torch.ones(2, 4)), {}) for i in range(12)]
    return {"model": lambda block, x: block(x), "calls": calls, "compile": {"backend": "eager"}}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


def counter() -> Any:
    """An integer attribute that grows in forward (cf. torchrec#4338)."""
    return {
        "model": Counting(),
        "calls": [((torch.ones(3),), {})] * 12,
        "compile": {"backend": "eager"},
    }


def local_class() -> Any:
    """pytorch#197896: a class that is made inside the compiled function."""
    log = []

    def fn(x):
        y = x.sin()

        class Touching:
            def touch(self, t):
                log.append(1)
                return t * 2

        return Touching().touch(y).cos()

    return {"model": fn, "calls": [((torch.ones(3),), {})], "compile": {"backend": "eager"}}


def early_exit() -> Any:
    """A loop that ends on a value: the whole function is given up, and no counter says so."""

    def fn(x):
        for _ in range(4):
            x = x * 0.5
            if x.abs().max().item() < 0.2:
                break
        return x.sin()

    return {
        "model": fn,
        "calls": [((torch.linspace(-1, 1, 8),), {})],
        "compile": {"backend": "eager"},
    }
