import torch
from torch import nn


class History:
    """The last values, and where the next one goes."""

    def __init__(self, size, dim):
        self.size, self.count = size, 0
        self.values = torch.zeros(size, dim)

    def add(self, value):
        self.values[self.count % self.size] = value.detach().mean(0)
        self.count += 1
        return self.values[: min(self.count, self.size)]


class Gate(nn.Module):
    def __init__(self, dim, history):
        super().__init__()
        self.history, self.scale = history, nn.Linear(dim, dim)

    def forward(self, x):
        return x * torch.sigmoid(self.scale(x)) + self.history.add(x).mean(0)
