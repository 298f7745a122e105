"""Known hangs and slow compiles, one factory each, for ``reprokit capture``.

A factory takes ``size`` (of the bug's own tensors, or the length of its chain) and ``host`` (the
model around it: ``alone``, ``mlp``, ``block`` or ``conv``). In a host the bug is the step in the
middle of one graph. The first word of a docstring is the label of the bug: a public issue, or the
cause.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from bug_hosts import inline, within


def lock_pass(size: int = 16, host: str = "alone") -> Any:
    """made-lock-pass: a custom pass waits for a lock that its own thread holds."""
    import torch._inductor.config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    lock = threading.Lock()

    class WaitsForItself(CustomGraphPass):
        def __call__(self, graph):
            with lock, lock:
                pass

        def uuid(self):
            return None

    torch._inductor.config.post_grad_custom_post_pass = WaitsForItself()
    return inline(host, torch.relu, size)


def lowering_hangs(size: int = 8, host: str = "alone") -> Any:
    """injected-lowering-hang, with BUG=hang of cases/inject."""
    return inline(host, torch.erf, size)


def kernel_hangs(size: int = 8, host: str = "alone") -> Any:
    """injected-kernel-hang, with BUG=kernel-hang of cases/inject."""
    return inline(host, torch.erf, size)


def where_chain(size: int = 16, host: str = "alone") -> Any:
    """pytorch#192498: a value that is used twice is written out twice, so that a chain of ``size``
    steps takes 2**size.
    """

    def bug(x):
        y = x
        for i in range(size):
            y = torch.where(y > i * 0.1, y + x, y * 0.5)
        return y

    return within(host, bug, (torch.randn(64),), is_fed=True)


def square_chain(size: int = 16, host: str = "alone") -> Any:
    """pytorch#192498, in the form of samples/superlinear_compile.py."""

    def bug(x):
        for _ in range(size):
            x = x * x + 0.5
        return x

    return within(host, bug, (torch.rand(16) * 0.1,))


def pool_grad(size: int = 61, host: str = "alone") -> Any:
    """pytorch#181653: the gradient through pooling on odd sizes takes sympy long."""

    def bug(x):
        y = F.max_pool2d(x, 3, 2, padding=1)
        y = torch.log(torch.clamp(y, min=1e-3)).pow(2)
        y = F.avg_pool2d(y, 3, 2)
        y = F.avg_pool2d(y, 2, 1, padding=1)
        y = F.adaptive_avg_pool2d(y, (5, 5))
        return F.adaptive_avg_pool2d(y.sin(), (3, 4)).sum()

    return within(host, torch.func.grad(bug), (torch.rand(1, 3, size, size - 8),))
