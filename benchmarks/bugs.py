"""Known bugs at any size and in several models, a factory each; for benchmarks/sightings.py.

reprokit capture benchmarks/bugs.py:keyerror_buf --set host=block --set size=12

A factory takes ``size`` (of the bug's own tensors, or the length of its chain) and ``host`` (the
model around it: ``alone``, ``mlp``, ``block``, ``conv``). In a host the bug is the step in the
middle of one graph: it takes the hidden state, or tensors of its own beside it, and its result goes
on through the model and out. The first word of a docstring is the label: a public issue, or what
the cause is.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """Takes (4, 16)."""

    def __init__(self, step):
        super().__init__()
        self.step, self.norm = step, nn.LayerNorm(24)
        self.a, self.b, self.c, self.d = (
            nn.Linear(16, 24),
            nn.Linear(24, 16),
            nn.Linear(16, 24),
            nn.Linear(24, 5),
        )

    def forward(self, h, *args):
        h = self.b(F.silu(self.norm(self.a(h))))
        h, *more = self.step(h, *args)
        return torch.softmax(self.d(torch.tanh(self.c(h))), -1), *more


class Block(nn.Module):
    """One layer of a transformer around the step; takes (2, 8, 16)."""

    def __init__(self, step, d=16, heads=2):
        super().__init__()
        self.step, self.heads = step, heads
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.f1, self.f2 = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            nn.Linear(d, 4 * d),
            nn.Linear(4 * d, d),
        )

    def forward(self, h, *args):
        batch, tokens, d = h.shape
        q, k, v = (
            t.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.n1(h)).chunk(3, -1)
        )
        a = torch.softmax(q @ k.transpose(-1, -2) * 0.35, -1)
        h = h + self.o((a @ v).transpose(1, 2).reshape(batch, tokens, d))
        h, *more = self.step(self.n2(h), *args)
        return self.f2(F.silu(self.f1(self.n3(h)))).sum(-1), *more


class Conv(nn.Module):
    """A convolutional network with a head; takes (2, 3, 12, 12)."""

    def __init__(self, step):
        super().__init__()
        self.step = step
        self.c1, self.c2, self.norm, self.out = (
            nn.Conv2d(3, 8, 3),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.Linear(8, 4),
        )

    def forward(self, h, *args):
        h = F.max_pool2d(torch.sigmoid(self.norm(self.c1(h))), 2)
        h, *more = self.step(h, *args)
        return self.out(F.hardswish(self.c2(h)).mean((-1, -2))), *more


HOSTS = {"mlp": (Mlp, (4, 16)), "block": (Block, (2, 8, 16)), "conv": (Conv, (2, 3, 12, 12))}


def within(
    host: str, bug: Any, args: tuple[Any, ...], is_fed: bool = False, steps: int = 1, **more: Any
) -> Any:
    """The bug, a function of ``args``, in ``host``; ``is_fed``: what the host computes goes into
    its first tensor.
    """
    torch.manual_seed(0)
    if host == "alone":
        return {"model": bug, "calls": [(args, {})] * steps, **more}

    def step(h, *args):
        if is_fed:
            args = (args[0] + h.mean().to(args[0].dtype) * 0.01, *args[1:])
        told = bug(*args)
        return h + 0.01 * told.float().mean(), told

    kind, shape = HOSTS[host]
    return {
        "model": kind(step).eval(),
        "calls": [((torch.randn(shape), *args), {})] * steps,
        **more,
    }


def inline(host: str, act: Any, size: int, **more: Any) -> Any:
    """The bug is an activation: it takes the hidden state itself."""
    torch.manual_seed(0)
    if host == "alone":
        return {"model": act, "calls": [((torch.rand(size, size + 3),), {})], **more}
    kind, shape = HOSTS[host]
    return {
        "model": kind(lambda h: (act(h),)).eval(),
        "calls": [((torch.randn(shape),), {})],
        **more,
    }


def healthy(size: int = 8, host: str = "mlp") -> Any:
    """No bug: what a host does by itself."""
    return inline(host, torch.tanh, size)


# exceptions


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


def _relu_bug(what: str) -> None:
    from torch._inductor import config

    config.cpp.inject_relu_bug_TESTING_ONLY = what


def relu_cpp(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-relu-compile: torch's own injected bug, C++ that does not compile."""
    _relu_bug("compile_error")
    return inline(host, torch.relu, size)


def relu_backend(size: int = 8, host: str = "alone") -> Any:
    """dynamo-testing-relu-backend: torch's own broken backend, which raises for relu."""
    return inline(host, torch.relu, size, compile={"backend": "relu_compile_error_TESTING_ONLY"})


def lowering_raises(size: int = 8, host: str = "alone") -> Any:
    """injected-lowering-raise, with BUG=raise of benchmarks/inject."""
    return inline(host, torch.erf, size)


def own_pass(size: int = 8, host: str = "alone") -> Any:
    """made-custom-pass: the user's pass raises, and says how large the graph is."""
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
    """made-custom-backend: the user's backend knows no relu."""

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


# crashes


def jacfwd_trace(size: int = 3, host: str = "alone") -> Any:
    """pytorch#190856: the kernel of nested jacfwd of a trace term dies of SIGSEGV."""
    x = (
        torch.rand(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        + 0.1
    )

    def energy(t):
        return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(size, dtype=t.dtype)))

    return within(host, torch.func.jacfwd(torch.func.jacfwd(energy)), (x,))


def oob_abort(size: int = 100_000, host: str = "alone") -> Any:
    """oob-abort: an index out of bounds throws in an OpenMP region, which nothing can catch."""
    torch.set_num_threads(2)
    net = lambda x, i: x[i] + 1  # noqa: E731

    def bug(x, i):
        try:
            return net(x, i)
        except IndexError:
            return x

    return within(host, bug, (torch.randn(10), torch.full((size,), 12)))


def relu_throws(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-relu-throw: torch's own injected bug, C++ that throws."""
    _relu_bug("runtime_error")
    return inline(host, torch.relu, size)


def lowering_segv(size: int = 8, host: str = "alone") -> Any:
    """injected-lowering-segv, with BUG=segv of benchmarks/inject."""
    return inline(host, torch.erf, size)


def kernel_abort(size: int = 8, host: str = "alone") -> Any:
    """injected-kernel-abort, with BUG=kernel-abort of benchmarks/inject."""
    return inline(host, torch.erf, size)


def kernel_segv(size: int = 8, host: str = "alone") -> Any:
    """made-kernel-segv: generated C++ that writes to address 0."""
    from torch._inductor.codegen import cpp

    for owner in (cpp.CppOverrides, cpp.CppVecOverrides):
        owner.erf = staticmethod(lambda x: f"([&]{{ *(volatile int*)0 = 1; return {x}; }}())")
    return inline(host, torch.erf, size)


# wrong results


def acosh_large(size: int = 20, host: str = "alone") -> Any:
    """pytorch#183768: x * x overflows in the generated code."""
    return within(host, torch.acosh, (torch.full((size,), 1e30),))


def hessian_trace(size: int = 3, host: str = "alone") -> Any:
    """pytorch#190855: a constant is added to almost every entry."""
    x = torch.arange(1, size * size + 1, dtype=torch.float64).reshape(size, size) / (
        size * size + 1
    )

    def energy(t):
        return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(size, dtype=t.dtype)))

    return within(host, torch.func.hessian(energy), (x,))


def shift_clone(size: int = 6, host: str = "alone") -> Any:
    """pytorch#197829: the clone is dropped."""

    def bug(x):
        x[1:] = x[:-1].clone()
        return x

    return within(host, bug, (torch.arange(4.0 * size).reshape(size, 4),))


def dtype_view(size: int = 4, host: str = "alone") -> Any:
    """pytorch#198101: a read through a dtype view is moved behind a later write."""

    def bug(x):
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)

    return within(
        host, bug, (torch.arange(-12, 6 * size - 12, dtype=torch.int64).reshape(size, 6),)
    )


def copy_then_mutate(size: int = 3, host: str = "alone") -> Any:
    """pytorch#198131: only the changed argument is wrong."""

    def bug(dst, src):
        dst[0:, :] = src[0:, :]
        src.add_(1)
        return src

    return within(host, bug, (torch.zeros(size, 4), torch.arange(4.0 * size).view(size, 4)))


def relu_wrong(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-relu-accuracy: torch's own injected bug, relu gives more by one."""
    _relu_bug("accuracy")
    return inline(host, torch.relu, size)


def log1p_wrong(size: int = 8, host: str = "alone") -> Any:
    """inductor-testing-log1p-accuracy: torch's own injected bug, log1p gives more by one."""
    from torch._inductor import config

    config.cpp.inject_log1p_bug_TESTING_ONLY = "accuracy"
    return inline(host, lambda x: torch.log1p(x.abs()), size)


# graph breaks and recompiles


def local_class(size: int = 3, host: str = "alone") -> Any:
    """pytorch#197896: a class that is made inside the compiled function."""
    log = []

    def bug(x):
        y = x.sin()

        class Touching:
            def touch(self, t):
                log.append(1)
                return t * 2

        return Touching().touch(y).cos()

    return within(host, bug, (torch.ones(size),), compile={"backend": "eager"})


def early_exit(size: int = 4, host: str = "alone") -> Any:
    """item-early-exit: a loop that ends on a value."""

    def bug(x):
        for _ in range(size):
            x = x * 0.5
            if x.abs().max().item() < 0.2:
                break
        return x.sin()

    return within(host, bug, (torch.linspace(-1, 1, 8),), compile={"backend": "eager"})


class Processing(nn.Module):
    FUNCTIONS = (
        torch.sin,
        torch.cos,
        torch.tan,
        torch.tanh,
        torch.exp,
        torch.sigmoid,
        torch.relu,
        torch.abs,
        torch.neg,
        torch.square,
        torch.sinh,
        torch.cosh,
    )

    def __init__(self, number, size):
        super().__init__()
        self.linear, self.processor = nn.Linear(size, size), self.FUNCTIONS[number]

    def forward(self, x):
        return self.processor(self.linear(x))


def processor_identity(size: int = 4, host: str = "alone") -> Any:
    """pytorch#163329: one compiled function over many instances, each with a function of its
    own.
    """
    torch.manual_seed(0)
    blocks = [Processing(i, size) for i in range(12)]
    if host == "alone":
        calls = [((block, torch.ones(2, size)), {}) for block in blocks]
        return {"model": lambda block, x: block(x), "calls": calls, "compile": {"backend": "eager"}}
    kind, shape = HOSTS[host]
    model = kind(lambda h, block, x: (h + block(x).mean(),)).eval()
    calls = [((torch.randn(shape), block, torch.ones(2, size)), {}) for block in blocks]
    return {"model": model, "calls": calls, "compile": {"backend": "eager"}}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


def counter(size: int = 3, host: str = "alone") -> Any:
    """int-attribute: an integer attribute that grows in forward (cf. torchrec#4338)."""
    return within(host, Counting(), (torch.ones(size),), steps=12, compile={"backend": "eager"})


class Cache(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("keys", torch.zeros(length, 8))
        self._current_idx = 0

    def forward(self, key):
        self.keys[self._current_idx] = key[0]
        self._current_idx += 1
        return torch.softmax(self.keys @ key[0], 0)


def kv_cache(size: int = 16, host: str = "alone") -> Any:
    """kv-cache-index: the index of a KV cache is one too, of another program."""
    return within(
        host, Cache(size), (torch.randn(1, 8),), steps=12, compile={"backend": "aot_eager"}
    )


# hangs and slow compiles


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
    """injected-lowering-hang, with BUG=hang of benchmarks/inject."""
    return inline(host, torch.erf, size)


def kernel_hangs(size: int = 8, host: str = "alone") -> Any:
    """injected-kernel-hang, with BUG=kernel-hang of benchmarks/inject."""
    return inline(host, torch.erf, size)


def where_chain(size: int = 16, host: str = "alone") -> Any:
    """pytorch#192498: what is used twice is written out twice; a chain of ``size`` steps takes
    2**size.
    """

    def bug(x):
        y = x
        for i in range(size):
            y = torch.where(y > i * 0.1, y + x, y * 0.5)
        return y

    return within(host, bug, (torch.randn(64),), is_fed=True)


def square_chain(size: int = 16, host: str = "alone") -> Any:
    """pytorch#192498, as samples/superlinear_compile.py has it."""

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
