import torch
from torch import nn


def reachable(frames, fill=-1e4):
    """Which frames a frame may look at. Everything, in segments as short as ours."""
    table = torch.full((frames, frames), fill)
    steps = torch.arange(frames)
    table[steps[None, :], steps[:, None]] = 0
    return table


class LocalMixer(nn.Module):
    """Mixes the frames with learned weights that do not depend on the content."""

    def __init__(self, cfg):
        super().__init__()
        self.frames = cfg.frames
        self.norm = nn.LayerNorm(cfg.width)
        self.weight = nn.Parameter(torch.randn(cfg.frames, cfg.frames) * 0.1)
        self.gate = nn.Parameter(torch.zeros(cfg.width))

    def forward(self, x):
        weights = torch.softmax(self.weight + reachable(self.frames), dim=-1)
        return x + torch.sigmoid(self.gate) * (weights @ self.norm(x))
