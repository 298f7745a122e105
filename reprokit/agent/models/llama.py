"""A Llama-style network in plain torch: RMSNorm, RoPE, grouped-query attention through SDPA,
SwiGLU.

llama40b has 48 layers, hidden 8192, 64 heads of 128, 8 key/value heads, intermediate 28672 and a
vocabulary of 32000: 41,595,707,392 parameters, 83.2 GB in bfloat16.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return h.to(x.dtype) * self.weight


def rotate(x, cos, sin):  # x: batch, heads, tokens, head size
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.head = hidden // heads
        self.q = nn.Linear(hidden, heads * self.head, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.o = nn.Linear(heads * self.head, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        q, k, v = (
            w(x).view(batch, tokens, -1, self.head).transpose(1, 2)
            for w in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, tokens, -1))


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, intermediate):
        super().__init__()
        self.attention = Attention(hidden, heads, kv_heads)
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)
        self.norm1, self.norm2 = RMSNorm(hidden), RMSNorm(hidden)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    tp_plan = {
        "blocks.*.attention.q": "colwise",
        "blocks.*.attention.k": "colwise",
        "blocks.*.attention.v": "colwise",
        "blocks.*.attention.o": "rowwise",
        "blocks.*.gate": "colwise",
        "blocks.*.up": "colwise",
        "blocks.*.down": "rowwise",
    }

    def __init__(self, layers, hidden, heads, kv_heads, intermediate, vocab, theta=500000.0):
        super().__init__()
        self.head_size, self.theta = hidden // heads, theta
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, kv_heads, intermediate) for _ in range(layers)
        )
        self.norm, self.head = RMSNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        even = torch.arange(0, self.head_size, 2, device=ids.device, dtype=torch.float32)
        place = torch.arange(ids.shape[1], device=ids.device).float()
        angle = torch.outer(place, self.theta ** (-even / self.head_size)).repeat(1, 2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def make(layers, hidden, heads, kv_heads, intermediate, vocab, batch_size, sequence_length):
    """Give the model and its arguments: ids of shape (batch_size, sequence_length), int64."""
    model = Llama(layers, hidden, heads, kv_heads, intermediate, vocab)
    return model, (torch.randint(0, vocab, (batch_size, sequence_length)),)
