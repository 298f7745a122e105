import torch
import torch.nn.functional as F
from torch import nn


class FeatureGate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, width)

    def forward(self, x):
        return x * torch.sigmoid(self.score(x))


class Block(nn.Module):
    def __init__(self, width, drop, double):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Dropout(drop), nn.Linear(2 * width, width))
        self.gate = FeatureGate(width)
        self.double = double

    def forward(self, x):
        y = self.gate(self.inner(self.norm(x)))
        if self.double:
            y = y + y
        return x + y


class ResidualTabular(nn.Module):
    def __init__(self, columns, width=16, depth=4, drop=0.0, double_at=2):
        super().__init__()
        self.bins = nn.Parameter(torch.linspace(-2, 2, 5).repeat(columns, 1))
        self.stem = nn.Linear(columns * 5, width)
        self.blocks = nn.ModuleList(Block(width, drop, i == double_at) for i in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        soft = torch.tanh(3 * (x.unsqueeze(-1) - self.bins)).flatten(1)
        h = F.relu(self.stem(soft))
        for block in self.blocks:
            h = block(h)
        return self.out(h).squeeze(-1)
