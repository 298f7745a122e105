"""Binary weights and activations with straight-through gradients."""
import torch
from torch import nn


class SignSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


def sign(x):
    return SignSTE.apply(x)


class BinaryLinear(nn.Linear):
    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out, bias=False)

    def forward(self, x):
        return nn.functional.linear(x, sign(self.weight))


class BinaryBlock(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = BinaryLinear(n_in, n_out)
        self.norm = nn.LayerNorm(n_out, elementwise_affine=False)

    def forward(self, x):
        return sign(self.norm(self.lin(x)))


class Vote(nn.Module):
    """Counts the votes of the last binary layer for each class."""

    def __init__(self, n_in, classes):
        super().__init__()
        self.lin = BinaryLinear(n_in, classes)

    def forward(self, x):
        return self.lin(x) / 2
