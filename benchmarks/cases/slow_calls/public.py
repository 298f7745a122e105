"""Factories of public reports of compiled calls that are slower than eager on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

UNIT = torch.Generator().manual_seed(0)


def mish():
    """pytorch#93498."""
    return (lambda x: x * torch.tanh(F.softplus(x))), (torch.randn(1_000_000),)


def log():
    """pytorch#110611."""
    return torch.log, (torch.rand(1 << 18, generator=UNIT).clamp(1e-6, 1 - 1e-6),)


def logit():
    """pytorch#110611."""
    return torch.logit, (torch.rand(1 << 18, generator=UNIT).clamp(1e-6, 1 - 1e-6),)


def small_min_sum():
    """pytorch#106466."""
    return (lambda a, b: torch.min(a, b).sum(-1)), (torch.rand(192), torch.rand(192))


class CumulativeProduct(nn.Module):
    """pytorch#136263. Since torch 2.13 at the latest, its backward takes linear time."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64, 128))

    def forward(self, x):
        return torch.cumprod(x * self.scale, 1)


def cumprod_backward():
    return {
        "model": CumulativeProduct(),
        "calls": [((torch.rand(64, 128) + 0.5,), {})],
        "train": True,
    }


class Norm(nn.Module):
    """A layer with settings of its own, as in pytorch#185886."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.variance_epsilon = 1e-6
        self.scale_fa = 0.5

    def forward(self, x):
        return (
            x
            * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            * self.weight
            * self.scale_fa
        )


def layers_with_numbers():
    """pytorch#185886."""
    return nn.Sequential(*[Norm() for _ in range(40)]), (torch.randn(4, 8),)
