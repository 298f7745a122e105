import torch
from einops import einsum, rearrange, repeat
from einops.layers.torch import EinMix, Rearrange
from torch import nn


class Residual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(dim), fn

    def forward(self, x, **kw):
        return x + self.fn(self.norm(x), **kw)


class FeedForward(nn.Sequential):
    def __init__(self, dim, mult=2):
        super().__init__(nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))


class WindowMixer(nn.Module):
    """Mixes the cells of each w x w window with learned weights (a Synthesizer, no queries);
    a shifted window must not look over the border."""

    def __init__(self, dim, window, shifted):
        super().__init__()
        n = window ** 2
        self.window, self.shifted = window, shifted
        self.relation = nn.Parameter(0.1 * torch.randn(n, n))
        self.value = EinMix("b n d -> b n e", weight_shape="d e", d=dim, e=dim)
        self.out = EinMix("b n e -> b n d", weight_shape="e d", bias_shape="d", d=dim, e=dim)

    def regions(self):
        cells = torch.arange(self.window ** 2)
        if not self.shifted:
            return [cells]
        return [cells[: len(cells) // 2], cells[len(cells) // 2:]]

    def allowed(self):
        """Additive mask: 0 where both cells are of the same region."""
        n = self.window ** 2
        mask = torch.full((n, n), -10000.0)
        for cells in self.regions():
            mask[cells.unsqueeze(0), cells.unsqueeze(1)] = 0
        return mask

    def forward(self, x):
        w = self.window
        h = x.shape[1] // w
        x = rearrange(x, "b (h w1) (w w2) d -> (b h w) (w1 w2) d", w1=w, w2=w)
        mix = torch.softmax(self.relation + self.allowed(), dim=-1)
        y = self.out(einsum(mix, self.value(x), "i j, b j d -> b i d"))
        return rearrange(y, "(b h w) (w1 w2) d -> b (h w1) (w w2) d", w1=w, w2=w, h=h, w=h)


class PatchEmbed(nn.Sequential):
    def __init__(self, channels, patch, dim):
        super().__init__(
            Rearrange("b c (h p1) (w p2) -> b h w (p1 p2 c)", p1=patch, p2=patch),
            nn.Linear(channels * patch * patch, dim),
        )


def positions(side, dim):
    at = torch.linspace(-1, 1, side)
    f = 2.0 ** torch.arange(dim // 4)
    a = rearrange(at, "s -> s 1") * f
    wave = torch.cat([a.sin(), a.cos()], -1)
    return torch.cat([repeat(wave, "h d -> h w d", w=side), repeat(wave, "w d -> h w d", h=side)], -1)
