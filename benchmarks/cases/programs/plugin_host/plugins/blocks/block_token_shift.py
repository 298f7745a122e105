import torch
from torch import nn


class Plugin(nn.Module):
    def __init__(self, width, share=0.5):
        super().__init__()
        self.mix = nn.Parameter(torch.full((width,), share))
        self.out = nn.Linear(width, width)

    def forward(self, h):
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1)
        return h + self.out(h * self.mix + before * (1 - self.mix))
