"""Autotuning with a deadline: each matrix size is tried with many kernels, and each kernel is a run
of the C++ compiler. A time limit that is enough for the default mode ends in the middle.

    reprokit capture samples/max_autotune.py:make --timeout 30                 slow-compile, cpp-build
    reprokit capture samples/max_autotune.py:make --timeout 30 --mode default  ok, after 24 s

The verdict of the first command is not a hang.
"""

import itertools

import torch
import torch._inductor.config
from torch import nn


def make(layers=24):
    torch._inductor.config.freezing = (
        True  # only constant weights are packed, and only packed ones are autotuned on a CPU
    )
    sizes = [64 + 16 * n for n in range(layers + 1)]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))
    return {
        "model": model,
        "calls": [((torch.randn(32, 64),), {})],
        "compile": {"mode": "max-autotune"},
    }


if __name__ == "__main__":
    made = make()
    with torch.no_grad():
        print(torch.compile(made["model"].eval(), **made["compile"])(*made["calls"][0][0]).shape)
