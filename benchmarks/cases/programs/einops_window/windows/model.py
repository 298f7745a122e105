from einops.layers.torch import Reduce
from torch import nn

from .blocks import FeedForward, PatchEmbed, Residual, WindowMixer, positions


class WindowNet(nn.Module):
    def __init__(self, size=32, channels=3, patch=4, dim=16, window=4, depth=2, classes=4):
        super().__init__()
        side = size // patch
        if side % window:
            raise ValueError("the windows do not tile the picture")
        self.embed = PatchEmbed(channels, patch, dim)
        self.register_buffer("pos", positions(side, dim), persistent=False)
        self.layers = nn.ModuleList()
        for i in range(depth):
            self.layers.append(Residual(dim, WindowMixer(dim, window, shifted=i % 2 == 1)))
            self.layers.append(Residual(dim, FeedForward(dim)))
        self.head = nn.Sequential(Reduce("b h w d -> b d", "mean"), nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, x):
        x = self.embed(x) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
