"""Factories whose compiled calls are not slower than eager on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def mlp():
    return nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)), (
        torch.randn(64, 512),
    )


def matmul():
    return (lambda x, y: x @ y), (torch.randn(512, 512), torch.randn(512, 512))


def pointwise_chain():
    return (lambda x: (x * 2 + 1).abs().sqrt() - x.clamp(-1, 1) * x), (torch.randn(500_000),)


def layer_norm():
    return nn.Sequential(nn.LayerNorm(512), nn.GELU(), nn.LayerNorm(512)), (torch.randn(512, 512),)


def attention():
    q = torch.randn(4, 8, 128, 32)
    return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), (q, q.clone(), q.clone())


def convolution():
    return nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU()), (
        torch.randn(4, 16, 48, 48),
    )


def softmax_chain():
    return (lambda x: torch.softmax(x * 2 + 1, -1) * x), (torch.randn(512, 1024),)


def gated():
    return (lambda x, y: torch.sigmoid(x) * torch.tanh(y) + x * y), (
        torch.randn(300_000),
        torch.randn(300_000),
    )


def lstm_cell():
    cell = nn.LSTMCell(256, 256)
    return cell, (torch.randn(64, 256),)


def encoder():
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).eval()
    return layer, (torch.randn(8, 64, 128),)


def train_mlp():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    return {"model": model, "calls": [((torch.randn(128, 256),), {})], "train": True}


def reduction():
    return (lambda x: (x * x).sum(-1).sqrt() + x.mean(-1)), (torch.randn(1000, 500),)
