"""The bug of samples/crash.py (pytorch#190856) inside a neural elasticity model."""

import torch


def make():
    generator = torch.Generator().manual_seed(0)
    weights = [torch.rand(3, 3, dtype=torch.float64, generator=generator) * 0.3 for _ in range(16)]

    def energy(t):
        h = t
        for weight in weights:
            h = torch.tanh(h @ weight + t)
        strain = t + torch.trace(t) * torch.eye(3, dtype=t.dtype)
        return torch.mean(1.0 / strain) + (h * h).sum()

    x = torch.rand(3, 3, dtype=torch.float64, generator=generator) + 0.1
    return torch.func.jacfwd(torch.func.jacfwd(energy)), (x,)
