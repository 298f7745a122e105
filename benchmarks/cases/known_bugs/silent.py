"""Known bugs that stop no program, one factory each: wrong results, graph breaks and recompiles.

A factory takes ``size`` (of the bug's own tensors, or the length of its chain) and ``host`` (the
model around it: ``alone``, ``mlp``, ``block`` or ``conv``). In a host the bug is the step in the
middle of one graph. The first word of a docstring is the label of the bug: a public issue, or the
cause.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from bug_hosts import HOSTS, inject_relu_bug, inline, within
from torch import nn


def acosh_large(size: int = 20, host: str = "alone") -> Any:
    """pytorch#183768: x * x overflows in the generated code."""
    return within(host, torch.acosh, (torch.full((size,), 1e30),))


def hessian_trace(size: int = 3, host: str = "alone") -> Any:
    """pytorch#190855: a constant is added to almost every entry."""
    x = torch.arange(1, size * size + 1, dtype=torch.float64).reshape(size, size) / (
        size * size + 1
    )

    def energy(t):
        return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(size, dtype=t.dtype)))

    return within(host, torch.func.hessian(energy), (x,))


def shift_clone(size: int = 6, host: str = "alone") -> Any:
    """pytorch#197829: the clone is dropped."""

    def bug(x):
        x[1:] = x[:-1].clone()
        return x

    return within(host, bug, (torch.arange(4.0 * size).reshape(size, 4),))


def dtype_view(size: int = 4, host: str = "alone") -> Any:
    """pytorch#198101: a read through a dtype view is moved after a later write."""

    def bug(x):
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)

    return within(
        host, bug, (torch.arange(-12, 6 * size - 12, dtype=torch.int64).reshape(size, 6),)
    )


def copy_then_mutate(size: int = 3, host: str = "alone") -> Any:
    """pytorch#198131: only the changed argument is wrong."""

    def bug(dst, src):
        dst[0:, :] = src[0:, :]
        src.add_(1)
        return src

    return within(host, bug, (torch.zeros(size, 4), torch.arange(4.0 * size).view(size, 4)))


def relu_wrong(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-relu-accuracy: torch's own injected bug, relu is too large by one."""
    inject_relu_bug("accuracy")
    return inline(host, torch.relu, size)


def log1p_wrong(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-log1p-accuracy: torch's own injected bug, log1p is too large by one."""
    from torch._inductor import config

    config.cpp.inject_log1p_bug_TESTING_ONLY = "accuracy"
    return inline(host, lambda x: torch.log1p(x.abs()), size)


# Graph breaks and recompiles


def local_class(size: int = 3, host: str = "alone") -> Any:
    """pytorch#197896: a class is defined inside the compiled function."""
    log = []

    def bug(x):
        y = x.sin()

        class Touching:
            def touch(self, t):
                log.append(1)
                return t * 2

        return Touching().touch(y).cos()

    return within(host, bug, (torch.ones(size),), compile={"backend": "eager"})


def early_exit(size: int = 4, host: str = "alone") -> Any:
    """item-early-exit: a loop ends on the value of a tensor."""

    def bug(x):
        for _ in range(size):
            x = x * 0.5
            if x.abs().max().item() < 0.2:
                break
        return x.sin()

    return within(host, bug, (torch.linspace(-1, 1, 8),), compile={"backend": "eager"})


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

    def __init__(self, number, size):
        super().__init__()
        self.linear, self.processor = nn.Linear(size, size), self.FUNCTIONS[number]

    def forward(self, x):
        return self.processor(self.linear(x))


def processor_identity(size: int = 4, host: str = "alone") -> Any:
    """pytorch#163329: one compiled function over many instances, each with a different function."""
    torch.manual_seed(0)
    blocks = [Processing(i, size) for i in range(12)]
    if host == "alone":
        calls = [((block, torch.ones(2, size)), {}) for block in blocks]
        return {"model": lambda block, x: block(x), "calls": calls, "compile": {"backend": "eager"}}
    kind, shape = HOSTS[host]
    model = kind(lambda h, block, x: (h + block(x).mean(),)).eval()
    calls = [((torch.randn(shape), block, torch.ones(2, size)), {}) for block in blocks]
    return {"model": model, "calls": calls, "compile": {"backend": "eager"}}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


def counter(size: int = 3, host: str = "alone") -> Any:
    """int-attribute: an integer attribute that grows in forward (cf. torchrec#4338)."""
    return within(host, Counting(), (torch.ones(size),), steps=12, compile={"backend": "eager"})


class Cache(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("keys", torch.zeros(length, 8))
        self._current_idx = 0

    def forward(self, key):
        self.keys[self._current_idx] = key[0]
        self._current_idx += 1
        return torch.softmax(self.keys @ key[0], 0)


def kv_cache(size: int = 16, host: str = "alone") -> Any:
    """kv-cache-index: the index of a KV cache is an integer attribute that grows."""
    return within(
        host, Cache(size), (torch.randn(1, 8),), steps=12, compile={"backend": "aot_eager"}
    )


# Wrong results inside larger models; a case that is not a bug of the compiler


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


def gelu_inf() -> Any:
    """Eager mode returns NaN where inf is right: this is not a bug of the compiler."""
    return F.gelu, (torch.full((32,), float("inf")),)
