import math
from dataclasses import dataclass

import torch
from torch import nn

from .masks import block_mask


@dataclass
class Config:
    dim: int = 32
    heads: int = 2
    layers: int = 3
    length: int = 8


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.config.dim)
        return self.out(block_mask(scores, self.config.length) @ v)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(config.dim), Attention(config)
        self.mlp = nn.Sequential(nn.Linear(config.dim, 64), nn.GELU(), nn.Linear(64, config.dim))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(100, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.head = nn.Linear(config.dim, 100)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
