import torch
from torch import nn

from .layers import LAYERS
from .registry import register


class Frontend(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.register_buffer("mean", torch.zeros(cfg.n_mels))
        self.register_buffer("scale", torch.ones(cfg.n_mels))
        self.proj = nn.Linear(cfg.n_mels, cfg.width)

    def forward(self, mel):
        return self.proj((torch.log1p(mel) - self.mean) * self.scale)


@register("segment_net")
class SegmentNet(nn.Module):
    def __init__(self, cfg, speakers):
        super().__init__()
        self.frontend = Frontend(cfg)
        self.layers = nn.ModuleList(LAYERS[kind](cfg) for kind in cfg.pattern)
        self.final = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, speakers)

    def forward(self, mel):
        x = self.frontend(mel)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final(x))
