"""Put a bug into the installed torch: each Python process with this folder on PYTHONPATH has it.

``BUG`` names the bug; ``BUG_OP`` names the ATen operator whose lowering has it (default: erf).

raise           the lowering raises an exception
segv, abort     the lowering dereferences NULL, or aborts
hang            the lowering never returns
raise-symbolic  the lowering raises where a size is symbolic
raise-half      the lowering raises in half of the runs
raise-three     the lowering raises in a graph that has erf, erfc and digamma
kernel-abort    the generated C++ aborts
kernel-hang     the generated C++ never returns
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
    """Fail as the bug does; return where it does not show."""
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
    """Put the bug into the module torch._inductor.lowering, which was just imported."""
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
    """Run the real loader of the module, then patch the module."""

    def __init__(self, real_loader):
        self.real_loader = real_loader

    def create_module(self, spec):
        return self.real_loader.create_module(spec)

    def exec_module(self, module):
        self.real_loader.exec_module(module)
        patch(module)


class Finder(importlib.abc.MetaPathFinder):
    """Find torch._inductor.lowering once, with a loader that patches it."""

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
