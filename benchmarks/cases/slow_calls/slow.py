"""Factories whose compiled calls are slower than eager on a CPU, each by one planted cause."""

from __future__ import annotations

import torch
from torch import nn


class ManyNumbers(nn.Module):
    """It reads thousands of numbers, each of which has a guard."""

    def __init__(self, count: int = 5000) -> None:
        super().__init__()
        self.weights = [float(i % 7) for i in range(count)]

    def forward(self, x):
        total = 0.0
        for weight in self.weights:
            total = total + weight
        return x * total


def many_numbers():
    return ManyNumbers(), (torch.randn(8),)


def many_globals():
    return read_globals, (torch.randn(8),)


TABLE = {f"key{number}": number for number in range(3000)}


def read_globals(x):
    total = 0
    for name in TABLE:
        total = total + TABLE[name]
    return x + total


def breaks_in_loop():
    def step(x):
        x = torch.sin(x)
        torch._dynamo.graph_break()
        return x + 1

    def function(x):
        for _ in range(30):
            x = step(x)
        return x

    return function, (torch.randn(16),)


def one_small_add():
    return (lambda x: x + 1), (torch.randn(4),)


def small_chain():
    return (lambda x, y: torch.relu(x @ y)), (torch.randn(4, 4), torch.randn(4, 4))


def long_division():
    x = torch.randint(1, 1 << 40, (200_000,))
    return (lambda x, y: torch.div(x, y, rounding_mode="floor")), (x, x % 1000 + 1)


def index_add():
    index = torch.randint(0, 1000, (50_000,))
    return (lambda x, y: torch.index_add(x, 0, index, y)), (
        torch.zeros(1000, 16),
        torch.randn(50_000, 16),
    )


def transposed_copy():
    return (lambda x: x.t().contiguous()), (torch.randn(1500, 1500),)


def max_pool():
    return nn.MaxPool2d(5, 1, 2), (torch.randn(2, 32, 64, 64),)
