import torch
from torch import nn


class MixerLayer(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channel = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.token(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.n2(x))


class Mixer(nn.Module):
    def __init__(self, size=16, patch=4, channels=1, dim=24, depth=2, classes=4):
        super().__init__()
        self.patches = nn.Conv2d(channels, dim, patch, patch)
        self.layers = nn.Sequential(*[MixerLayer((size // patch) ** 2, dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, img):
        x = self.patches(img).flatten(2).transpose(1, 2)
        return self.head(self.layers(x).mean(1))


def build(name, **kwargs):
    return {"mixer": Mixer}[name](**kwargs)
