from dataclasses import dataclass

import torch
from torch import nn

from .layers import Gate, History


@dataclass
class Output:
    loss: torch.Tensor
    prediction: torch.Tensor


class Forecaster(nn.Module):
    def __init__(self, dim=16, layers=2):
        super().__init__()
        history = History(32, dim)
        self.embed = nn.Linear(4, dim)
        self.layers = nn.ModuleList(Gate(dim, history) for _ in range(layers))
        self.head = nn.Linear(dim, 1)

    def forward(self, x, y):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        prediction = self.head(h)
        return Output((prediction - y).pow(2).mean(), prediction)
