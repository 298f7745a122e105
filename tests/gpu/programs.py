"""The targets of the checks on a GPU. Each factory has one failure, or none. Eager code has none, so
that the failure is one of compiled code.

python programs.py NAME runs a program that is not a factory.
"""

from __future__ import annotations

import os
import sys

import torch
import triton
import triton.language as tl


def healthy():
    """A bf16 model with matrix products, a norm, attention and a reduction."""
    torch.manual_seed(0)
    functional = torch.nn.functional

    def call(x, w, v):
        y = functional.gelu(functional.layer_norm(x, (64,)) @ w)
        q = y.view(4, 32, 4, 16).transpose(1, 2)
        y = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        return torch.softmax(x + y.transpose(1, 2).reshape(4, 32, 64) @ v, -1).sum(1)

    shapes = (4, 32, 64), (64, 64), (64, 64)
    return call, tuple(torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes)


def wrong():
    """A bf16 kernel with wrong results: torch's own injected bug."""
    import torch._inductor.config

    torch._inductor.config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"
    x = torch.rand(64, 64, device="cuda", dtype=torch.bfloat16)
    return (lambda x: torch.relu(x) * 2), (x,)


def refused():
    """A lowering that raises on a GPU only, in the middle of a model."""
    import torch._inductor.lowering as lowering

    real = lowering.lowerings[torch.ops.aten.tan.default]

    def tan(x):
        if x.get_device().type == "cuda":
            raise NotImplementedError("no tan for this device")
        return real(x)

    lowering.lowerings[torch.ops.aten.tan.default] = tan

    def call(x, w):
        for _ in range(3):
            x = torch.tan(x @ w).relu()
        return x

    return call, (torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda"))


@triton.jit
def asserting_kernel(x, out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK > 64, "the block is too small")
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def bad_kernel():
    """A Triton kernel that does not compile."""

    def call(x):
        if not torch.compiler.is_compiling():
            return x * 2
        out = torch.empty_like(x)
        asserting_kernel[(1,)](x, out, 32)
        return out * 2

    return call, (torch.randn(32, device="cuda"),)


@triton.jit
def waiting_kernel(out, flag):
    seen = tl.load(flag, volatile=True)
    while seen == 0:
        seen = tl.load(flag, volatile=True)
    tl.store(out, 1.0)


def wait(x, flag):
    """Launch a kernel that ends when the flag is not 0."""
    if not torch.compiler.is_compiling():
        return x.sin() + 1
    out = torch.empty_like(x)
    waiting_kernel[(1,)](out, flag)
    return x.sin() + out


def hanging_kernel():
    """A compiled kernel that never ends. Nothing in the call waits for it."""
    return wait, (torch.ones(64, device="cuda"), torch.zeros(1, device="cuda", dtype=torch.int32))


@triton.jit
def far_kernel(out, distance):
    tl.store(out + tl.load(distance), 1.0)


def illegal_access():
    """A compiled kernel that writes where no memory is."""

    def call(x, distance):
        if torch.compiler.is_compiling():
            far_kernel[(1,)](x, distance)
        return x + 1

    return call, (torch.ones(64, device="cuda"), torch.tensor([1 << 42], device="cuda"))


def mutated_input():
    """A cache that is changed in place, so that no CUDA graph is made."""

    def call(x, cache, position):
        cache.index_copy_(0, position, x.relu())
        return cache.mean()

    position = torch.zeros(1, dtype=torch.long, device="cuda")
    return call, (torch.randn(1, 16, device="cuda"), torch.zeros(8, 16, device="cuda"), position)


def item():
    """Read a value that a kernel never writes: the wait is in item()."""
    function, arguments = hanging_kernel()
    print(torch.compile(function)(*arguments).sum().item())


def synchronize():
    """Wait for a kernel that never ends, after one that ends compiled everything."""
    function, (x, flag) = hanging_kernel()
    compiled = torch.compile(function)
    compiled(x, flag + 1)
    torch.cuda.synchronize()
    print("ready", flush=True)
    compiled(x, flag)
    torch.cuda.synchronize()


def out_of_memory():
    """Allocate more than any device has, in compiled code."""

    def call(x):
        return torch.zeros(1 << 38, device="cuda") + x

    print(torch.compile(call)(torch.ones((), device="cuda")).sum())


def one_rank():
    """An all_reduce of NCCL inside compiled code; torchrun starts it."""
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")

    def call(x):
        y = x.sin()
        dist.all_reduce(y)
        return y + 1

    x = torch.ones(64, device="cuda")
    result = torch.compile(call)(x)
    torch.testing.assert_close(result, x.sin() * dist.get_world_size() + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    programs = (item, synchronize, out_of_memory, one_rank)
    {program.__name__: program for program in programs}[sys.argv[1]]()
