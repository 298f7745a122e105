"""Fake quantisation of activations with a straight-through gradient."""
import torch
from torch import nn


class RoundThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, observer):
        lo, hi = observer.limits
        observer.touch()
        return torch.round(x.clamp(lo, hi) / observer.step) * observer.step

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.observer = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        lo, hi = ctx.observer.limits
        return grad * ((x >= lo) & (x <= hi)), None


class Observer:
    def __init__(self, bits, limit):
        self.limits = (-limit, limit)
        self.step = 2 * limit / (2**bits - 1)
        self.calls = []

    def touch(self):
        self.calls.append(self.step)


class QuantLinear(nn.Linear):
    def __init__(self, n_in, n_out, bits=6, limit=3.0):
        super().__init__(n_in, n_out)
        self.observer = Observer(bits, limit)

    def forward(self, x):
        return RoundThrough.apply(super().forward(x), self.observer)
