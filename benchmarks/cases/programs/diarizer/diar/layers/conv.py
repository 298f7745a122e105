import torch.nn.functional as F
from torch import nn


class ConvModule(nn.Module):
    """Convolution module as in the Conformer, without batch norm."""

    def __init__(self, cfg, kernel=5):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.width)
        self.up = nn.Conv1d(cfg.width, 2 * cfg.width, 1)
        self.depth = nn.Conv1d(cfg.width, cfg.width, kernel, padding=kernel // 2, groups=cfg.width)
        self.down = nn.Conv1d(cfg.width, cfg.width, 1)

    def forward(self, x):
        y = self.norm(x).transpose(1, 2)
        y = F.glu(self.up(y), dim=1)
        y = self.down(F.silu(self.depth(y)))
        return x + y.transpose(1, 2)
