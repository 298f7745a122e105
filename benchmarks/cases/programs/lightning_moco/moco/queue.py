import torch
from torch import nn


class NegativeQueue(nn.Module):
    """First-in first-out memory of keys, newest first."""

    def __init__(self, size, dim, group):
        super().__init__()
        if size % group:
            raise ValueError("the queue's length must be a multiple of the batch")
        self.group = group
        self.register_buffer("keys", nn.functional.normalize(torch.randn(size, dim), dim=-1))
        self.register_buffer("age", torch.zeros(size, dtype=torch.long))

    @torch.no_grad()
    def shift(self):
        """Make room for a new group at the front; the oldest group falls out."""
        g = self.group
        self.keys[g:] = self.keys[:-g].clone()
        self.age.add_(1)

    @torch.no_grad()
    def put(self, k):
        self.keys[: self.group] = k
        self.age[: self.group] = 0

    def forward(self, q):
        return q @ self.keys.detach().clone().t()
