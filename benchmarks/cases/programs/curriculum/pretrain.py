import logging
import sys

import torch
import torch._dynamo
import yaml
from torch import nn

from src.losses import build_loss
from src.trainer import Trainer

CONFIG = """
seed: 11
lr: 0.004
updates: 14
log_every: 2
batch: 12
dims: [18, 32, 16]
backend: aot_eager
strict_compile: true
loss:
  info_nce: {start: 0.6, end: 0.05}
  variance: {weight: 0.1}
"""


def stream(cfg):
    g = torch.Generator().manual_seed(cfg["seed"])
    while True:
        base = torch.randn(cfg["batch"], cfg["dims"][0], generator=g)
        yield tuple(base + 0.2 * torch.randn(base.shape, generator=g) for _ in range(2))


def encoder(dims):
    layers = []
    for i, (a, b) in enumerate(zip(dims, dims[1:])):
        layers += [nn.Linear(a, b)] + ([nn.BatchNorm1d(b), nn.ReLU()] if i < len(dims) - 2 else [])
    return nn.Sequential(*layers)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    cfg = yaml.safe_load(CONFIG)
    for item in sys.argv[1:]:
        key, value = item.split("=")
        cfg[key] = yaml.safe_load(value)
    torch.manual_seed(cfg["seed"])
    # A silent fall back to eager cost us a week of cluster time, so make it an error.
    torch._dynamo.config.fail_on_recompile_limit_hit = cfg["strict_compile"]
    Trainer(encoder(cfg["dims"]), build_loss(cfg["loss"]), cfg).run(stream(cfg))
