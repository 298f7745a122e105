"""The models that the known bugs are put into, and the factories' common part."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """Linear layers around the step; takes (4, 16)."""

    def __init__(self, step):
        super().__init__()
        self.step, self.norm = step, nn.LayerNorm(24)
        self.a, self.b, self.c, self.d = (
            nn.Linear(16, 24),
            nn.Linear(24, 16),
            nn.Linear(16, 24),
            nn.Linear(24, 5),
        )

    def forward(self, h, *args):
        h = self.b(F.silu(self.norm(self.a(h))))
        h, *more = self.step(h, *args)
        return torch.softmax(self.d(torch.tanh(self.c(h))), -1), *more


class Block(nn.Module):
    """One layer of a transformer around the step; takes (2, 8, 16)."""

    def __init__(self, step, d=16, heads=2):
        super().__init__()
        self.step, self.heads = step, heads
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.f1, self.f2 = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            nn.Linear(d, 4 * d),
            nn.Linear(4 * d, d),
        )

    def forward(self, h, *args):
        batch, tokens, d = h.shape
        q, k, v = (
            t.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.n1(h)).chunk(3, -1)
        )
        a = torch.softmax(q @ k.transpose(-1, -2) * 0.35, -1)
        h = h + self.o((a @ v).transpose(1, 2).reshape(batch, tokens, d))
        h, *more = self.step(self.n2(h), *args)
        return self.f2(F.silu(self.f1(self.n3(h)))).sum(-1), *more


class Conv(nn.Module):
    """A convolutional network with a head; takes (2, 3, 12, 12)."""

    def __init__(self, step):
        super().__init__()
        self.step = step
        self.c1, self.c2, self.norm, self.out = (
            nn.Conv2d(3, 8, 3),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.Linear(8, 4),
        )

    def forward(self, h, *args):
        h = F.max_pool2d(torch.sigmoid(self.norm(self.c1(h))), 2)
        h, *more = self.step(h, *args)
        return self.out(F.hardswish(self.c2(h)).mean((-1, -2))), *more


HOSTS = {"mlp": (Mlp, (4, 16)), "block": (Block, (2, 8, 16)), "conv": (Conv, (2, 3, 12, 12))}


def within(
    host: str, bug: Any, args: tuple[Any, ...], is_fed: bool = False, steps: int = 1, **more: Any
) -> Any:
    """Return a target with the function ``bug`` in the middle of ``host``. With ``is_fed``, its
    first tensor depends on the hidden state.
    """
    torch.manual_seed(0)
    if host == "alone":
        return {"model": bug, "calls": [(args, {})] * steps, **more}

    def step(h, *args):
        if is_fed:
            args = (args[0] + h.mean().to(args[0].dtype) * 0.01, *args[1:])
        result = bug(*args)
        return h + 0.01 * result.float().mean(), result

    kind, shape = HOSTS[host]
    return {
        "model": kind(step).eval(),
        "calls": [((torch.randn(shape), *args), {})] * steps,
        **more,
    }


def inline(host: str, act: Any, size: int, **more: Any) -> Any:
    """Return a target in which the activation ``act`` has the bug: it takes the hidden state."""
    torch.manual_seed(0)
    if host == "alone":
        return {"model": act, "calls": [((torch.rand(size, size + 3),), {})], **more}
    kind, shape = HOSTS[host]
    return {
        "model": kind(lambda h: (act(h),)).eval(),
        "calls": [((torch.randn(shape),), {})],
        **more,
    }


def inject_relu_bug(kind: str) -> None:
    """Turn on a bug that torch has for its own tests."""
    from torch._inductor import config

    config.cpp.inject_relu_bug_TESTING_ONLY = kind
