"""The bug of samples/exception_inductor.py (pytorch#196570) in one layer of a small transformer."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, TOKENS, HEADS = 16, 8, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, head = x.shape[0], WIDTH // HEADS
        q, k, v = (
            t.view(batch, TOKENS, HEADS, head).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        weights = torch.softmax(
            q @ k.transpose(-1, -2) * head**-0.5 + x.new_zeros(TOKENS, TOKENS), -1
        )
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, TOKENS, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Mixer(nn.Module):
    """Mix tokens without their content; the diagonal is not masked."""

    def __init__(self):
        super().__init__()
        self.relation = nn.Parameter(torch.randn(TOKENS, TOKENS))

    def forward(self, x):
        mask = torch.full((TOKENS, TOKENS), -10000.0)
        index = torch.arange(TOKENS)
        mask[index.unsqueeze(0), index.unsqueeze(1)] = 0
        return torch.softmax(self.relation + mask, dim=-1) @ x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 50)
        self.blocks = nn.ModuleList([Block(), Block(), Mixer(), Block(), Block()])

    def forward(self, ids):
        x = self.embed(ids) + torch.arange(TOKENS)[:, None] * 0.01
        for block in self.blocks:
            x = block(x)
        return F.log_softmax(self.head(x), -1)


def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randint(0, 50, (2, TOKENS)),)
