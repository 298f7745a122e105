"""Known bugs that kill the process, one factory each, for ``reprokit capture``.

A factory takes ``size`` (of the bug's own tensors, or the length of its chain) and ``host`` (the
model around it: ``alone``, ``mlp``, ``block`` or ``conv``). In a host the bug is the step in the
middle of one graph. The first word of a docstring is the label of the bug: a public issue, or the
cause.
"""

from __future__ import annotations

from typing import Any

import torch
from bug_hosts import inline, within


def jacfwd_trace(size: int = 3, host: str = "alone") -> Any:
    """pytorch#190856: the kernel of nested jacfwd of a trace term is killed by SIGSEGV."""
    x = (
        torch.rand(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        + 0.1
    )

    def energy(t):
        return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(size, dtype=t.dtype)))

    return within(host, torch.func.jacfwd(torch.func.jacfwd(energy)), (x,))


def oob_abort(size: int = 100_000, host: str = "alone") -> Any:
    """oob-abort: an index out of bounds throws in an OpenMP region, where nothing can catch it."""
    torch.set_num_threads(2)
    net = lambda x, i: x[i] + 1  # noqa: E731

    def bug(x, i):
        try:
            return net(x, i)
        except IndexError:
            return x

    return within(host, bug, (torch.randn(10), torch.full((size,), 12)))


def lowering_segv(size: int = 8, host: str = "alone") -> Any:
    """injected-lowering-segv, with BUG=segv of cases/inject."""
    return inline(host, torch.erf, size)


def kernel_abort(size: int = 8, host: str = "alone") -> Any:
    """injected-kernel-abort, with BUG=kernel-abort of cases/inject."""
    return inline(host, torch.erf, size)


def kernel_segv(size: int = 8, host: str = "alone") -> Any:
    """made-kernel-segv: generated C++ that writes to address 0."""
    from torch._inductor.codegen import cpp

    for owner in (cpp.CppOverrides, cpp.CppVecOverrides):
        owner.erf = staticmethod(lambda x: f"([&]{{ *(volatile int*)0 = 1; return {x}; }}())")
    return inline(host, torch.erf, size)
