"""A Llama-style network that decodes with a static KV cache: one call for the prompt, then one a
token.

The cache (batch, key/value heads, tokens, head size) is a list of buffers that every call mutates
in place; the position is a tensor, so that a step is not a new constant to Dynamo.
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
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)).to(
            x.dtype
        ) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, intermediate):
        super().__init__()
        self.head = hidden // heads
        self.q = nn.Linear(hidden, heads * self.head, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.head, bias=False)
        self.o = nn.Linear(heads * self.head, hidden, bias=False)
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)
        self.norm1, self.norm2 = RMSNorm(hidden), RMSNorm(hidden)

    def forward(self, x, cos, sin, keys, values, place):
        batch, tokens, _ = x.shape
        h = self.norm1(x)
        q, k, v = (
            w(h).view(batch, tokens, -1, self.head).transpose(1, 2)
            for w in (self.q, self.k, self.v)
        )
        keys.index_copy_(2, place, rotate(k, cos, sin))
        values.index_copy_(2, place, v)
        seen = torch.arange(keys.shape[2], device=x.device) <= place[:, None]
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin), keys, values, attn_mask=seen, enable_gqa=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, layers, hidden, heads, kv_heads, intermediate, vocab, theta=500000.0):
        super().__init__()
        self.head_size, self.theta = hidden // heads, theta
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, kv_heads, intermediate) for _ in range(layers)
        )
        self.norm, self.head = RMSNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids, place, cache):
        x = self.embed(ids)
        even = torch.arange(0, self.head_size, 2, device=ids.device, dtype=torch.float32)
        angle = torch.outer(place.float(), self.theta ** (-even / self.head_size)).repeat(1, 2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for block, (keys, values) in zip(self.blocks, cache):
            x = block(x, cos, sin, keys, values, place)
        return self.head(self.norm(x))


def make(layers, hidden, heads, kv_heads, intermediate, vocab, batch_size, sequence_length, steps):
    """Give the model and its calls: a prompt of sequence_length tokens, then ``steps`` single
    tokens.
    """
    model = Decoder(layers, hidden, heads, kv_heads, intermediate, vocab)
    room = (batch_size, kv_heads, sequence_length + steps, hidden // heads)
    cache = [(torch.zeros(room), torch.zeros(room)) for _ in range(layers)]
    calls = [
        (
            (
                torch.randint(0, vocab, (batch_size, sequence_length)),
                torch.arange(sequence_length),
                cache,
            ),
            {},
        )
    ]
    for step in range(sequence_length, sequence_length + steps):
        calls.append(((torch.randint(0, vocab, (batch_size, 1)), torch.tensor([step]), cache), {}))
    return {"model": model, "calls": calls}
