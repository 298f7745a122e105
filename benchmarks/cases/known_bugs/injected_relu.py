"""Failures that torch itself injects into relu on a CPU, so that each version of torch has them.

``torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY`` is a switch of torch's own tests of its
minifier.
"""

import torch
import torch._inductor.config
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return torch.softmax(torch.relu(self.second(x) - 0.1), -1)


def _make(bug):
    torch.manual_seed(0)
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = bug
    return Block(16).eval(), (torch.randn(8, 16),)


def compile_error():
    return _make("compile_error")


def wrong_result():
    return _make("accuracy")
