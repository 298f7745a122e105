"""A healthy model: two calls with different batch sizes cause one recompile with a symbolic size.

reprokit capture samples/healthy.py:make
"""

import torch
from torch import nn


def make():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    return {"model": model, "calls": [((torch.randn(2, 8),), {}), ((torch.randn(3, 8),), {})]}


if __name__ == "__main__":
    made = make()
    compiled = torch.compile(made["model"])
    for args, kwargs in made["calls"]:
        print(compiled(*args, **kwargs))
