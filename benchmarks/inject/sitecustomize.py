"""A bug of the installed torch, for benchmarks and tests: whoever starts Python with this folder on
its path has it.

``BUG`` says which, ``BUG_OP`` in the lowering of which ATen operator (default erf):

raise, segv, abort, hang    the lowering raises, dereferences NULL, aborts, never returns
raise-symbolic              it raises only where a size is symbolic raise-half                  it
raises in half of the runs raise-three                 it raises only in a graph that has erf, erfc
and digamma kernel-abort, kernel-hang   the generated C++ aborts, never returns
"""

import importlib.abc
import importlib.machinery
import os
import sys

BUG, OPERATOR = os.environ.get("BUG", ""), os.environ.get("BUG_OP", "erf")
KERNEL = {
    "kernel-abort": "([&]{{ std::abort(); return {}; }}())",
    "kernel-hang": "([&]{{ volatile int z = 1; while (z) {{ usleep(1000); }} return {}; }}())",
}


def misbehave(args):
    """Do what the bug does, or return."""
    from torch._inductor.virtualized import V

    if BUG == "hang":
        import time

        while True:
            time.sleep(0.2)
    if BUG == "segv":
        import ctypes

        ctypes.string_at(0)
    if BUG == "abort":
        os.abort()
    targets = {str(n.target) for n in V.graph.module.graph.nodes} if BUG == "raise-three" else set()
    shows = {
        "raise": True,
        "raise-symbolic": (
            BUG == "raise-symbolic" and any(not str(s).isdigit() for s in args[0].get_size())
        ),
        "raise-half": os.urandom(1)[0] < 128,
        "raise-three": {f"aten.{n}.default" for n in ("erf", "erfc", "digamma")} <= targets,
    }
    if shows.get(BUG):
        raise RuntimeError("injected lowering bug")


def patch(lowering):
    """Put the bug into a freshly imported torch._inductor.lowering."""
    import torch

    if BUG in KERNEL:
        from torch._inductor.codegen import cpp

        for owner in (cpp.CppOverrides, cpp.CppVecOverrides):
            setattr(owner, OPERATOR, staticmethod(lambda x: KERNEL[BUG].format(x)))
        return
    packet = getattr(torch.ops.aten, OPERATOR)
    for overload in packet.overloads():
        operator = getattr(packet, overload)
        real = lowering.lowerings.get(operator)
        if real is None:
            continue

        def bad(*args, real=real, **kwargs):
            misbehave(args)
            return real(*args, **kwargs)

        lowering.lowerings[operator] = bad


class Loader(importlib.abc.Loader):
    """Patches the module behind its real loader."""

    def __init__(self, inner):
        self.inner = inner

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        self.inner.exec_module(module)
        patch(module)


class Finder(importlib.abc.MetaPathFinder):
    """Waits for the one module."""

    def find_spec(self, name, path, target=None):
        if name != "torch._inductor.lowering":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = Loader(spec.loader)
        return spec


if BUG:
    sys.meta_path.insert(0, Finder())
