import torch
from torch import nn

from . import ops


class Stage(nn.Module):
    def __init__(self, n_in, n_out, factor):
        super().__init__()
        self.conv = nn.Conv1d(n_in, n_out, 5, padding=2)
        self.norm = nn.GroupNorm(2, n_out)
        self.factor = factor

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return ops.decimate(x, self.factor)


class Picker(nn.Module):
    """Probability that a window has the arrival of a wave."""

    def __init__(self, s):
        super().__init__()
        widths = [2 * s.channels] + [s.width * 2**i for i in range(s.stages)]
        self.stages = nn.ModuleList(Stage(a, b, s.factor) for a, b in zip(widths, widths[1:]))
        self.head = nn.Sequential(nn.Linear(widths[-1], 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, trace):
        trace = trace - trace.mean(-1, keepdim=True)
        x = torch.cat([trace, ops.envelope(trace)], dim=1)
        for stage in self.stages:
            x = stage(x)
        return torch.sigmoid(self.head(x.mean(-1))).squeeze(-1)
