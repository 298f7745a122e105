"""Known bugs that raise an exception, one factory each, for ``reprokit capture``.

reprokit capture benchmarks/cases/known_bugs/raising.py:keyerror_buf --set host=block --set size=12

A factory takes ``size`` (of the bug's own tensors, or the length of its chain) and ``host`` (the
model around it: ``alone``, ``mlp``, ``block`` or ``conv``). In a host the bug is the step in the
middle of one graph. The first word of a docstring is the label of the bug: a public issue, or the
cause.
"""

from __future__ import annotations

from typing import Any

import torch
from bug_hosts import inject_relu_bug, inline, within


def keyerror_buf(size: int = 8, host: str = "alone") -> Any:
    """pytorch#196570: the C++ backend's fusion of outer loops loses a buffer."""

    def bug(x):
        mask = torch.full((size, size), -10000.0)
        i = torch.arange(size)
        mask[i.unsqueeze(0), i.unsqueeze(1)] = 0
        return torch.softmax(x + mask, dim=-1)

    return within(host, bug, (torch.randn(size, size),), is_fed=True)


def jacfwd_half(size: int = 3, host: str = "alone") -> Any:
    """pytorch#194706: the generated C++ of jacfwd of a product chain in half precision does not
    compile.
    """

    def chain(x):
        return torch.sum(torch.mm(torch.mm(torch.prod(x) + x, torch.sum(x) + x), torch.sum(x) + x))

    x = (torch.arange(1, size * size + 1, dtype=torch.float16) / (size * size + 1)).reshape(
        size, size
    )
    return within(host, torch.func.jacfwd(chain), (x,))


def relu_cpp(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-relu-compile: torch's own injected bug, C++ that does not compile."""
    inject_relu_bug("compile_error")
    return inline(host, torch.relu, size)


def relu_throws(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-relu-throw: torch's own injected bug, C++ that throws. The wrapper of the kernel
    turns it into a RuntimeError.
    """
    inject_relu_bug("runtime_error")
    return inline(host, torch.relu, size)


def relu_backend(size: int = 8, host: str = "alone") -> Any:
    """dynamo-testing-relu-backend: torch's own broken backend, which raises for relu."""
    return inline(host, torch.relu, size, compile={"backend": "relu_compile_error_TESTING_ONLY"})


def lowering_raises(size: int = 8, host: str = "alone") -> Any:
    """injected-lowering-raise, with BUG=raise of cases/inject."""
    return inline(host, torch.erf, size)


def own_pass(size: int = 8, host: str = "alone") -> Any:
    """made-custom-pass: the user's pass raises; the message has the size of the graph."""
    import torch._inductor.config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Strict(CustomGraphPass):
        def __call__(self, graph):
            count = sum(n.target is torch.ops.aten.exp2.default for n in graph.nodes)
            if count:
                raise ValueError(f"graph of {len(graph.nodes)} nodes has {count} exp2")

        def uuid(self):
            return None

    torch._inductor.config.post_grad_custom_post_pass = Strict()
    return inline(host, torch.exp2, size)


def own_backend(size: int = 8, host: str = "alone") -> Any:
    """made-custom-backend: the user's backend does not support relu."""

    def picky(gm, inputs):
        for node in gm.graph.nodes:
            if node.target is torch.relu:
                raise NotImplementedError(f"no kernel for {node.name} of {len(inputs)} inputs")
        return gm.forward

    return inline(host, torch.relu, size, compile={"backend": picky})


def no_fake(size: int = 8, host: str = "alone") -> Any:
    """made-no-fake-kernel: a custom operator without a fake implementation."""

    @torch.library.custom_op("bench::custom", mutates_args=())
    def custom(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return inline(host, custom, size)


def fake_raises(size: int = 8, host: str = "alone") -> Any:
    """made-fake-raises: a custom operator whose fake implementation is wrong about sizes."""

    @torch.library.custom_op("bench::picky", mutates_args=())
    def picky(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @picky.register_fake
    def _(x):
        if x.dim() > 1:
            raise RuntimeError(f"picky takes one dimension, not {x.dim()} of {tuple(x.shape)}")
        return torch.empty_like(x)

    return inline(host, picky, size)


def constraint(size: int = 8, host: str = "alone") -> Any:
    """made-constraint-violation: a size that is marked dynamic is made a constant by the
    program.
    """
    x = torch.randn(size, 3)
    torch._dynamo.mark_dynamic(x, 0)
    return within(host, lambda x: x * 2 + torch.ones(size, 1), (x,))
