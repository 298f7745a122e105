"""Programs whose memory grows with each call, and programs whose memory does not.

The leaks are in backends, so that only compiled code has them, except for those that eager has too.
"""

import collections
import ctypes
import functools
import os
import tempfile

import torch

X = torch.ones(8, 16)
KEPT_OUTPUTS = []
COUNTED = {}
NOTHINGS = []
LAST = None
POOLS = {}


def function(x):
    return torch.sin(x) * 2 + 1


def _target(model=function, backend="eager", calls=None, **more):
    calls = [((X,), {})] if calls is None else calls
    return {"model": model, "calls": calls, "compile": {"backend": backend}, **more}


def _backend(leak):
    """Return a backend whose code calls ``leak`` with the arguments and results of each call."""

    def backend(graph, inputs):
        def run(*args):
            outputs = graph.forward(*args)
            leak(args, outputs)
            return outputs

        return run

    return backend


# leaks


def closure():
    kept = []

    def keep_result(args, outputs):
        kept.append(outputs[0].clone())

    return _target(backend=_backend(keep_result))


def cache_key():
    def count_key(args, outputs):
        COUNTED[str(len(COUNTED) + 10_000)] = len(COUNTED) + 10_000

    return _target(backend=_backend(count_key))


def hook():
    watched = torch.nn.Linear(16, 16)

    def add_hook(args, outputs):
        watched.register_forward_hook(lambda module, inputs, result: None)

    return _target(backend=_backend(add_hook))


def none_falls():
    release = ctypes.pythonapi.Py_DecRef
    release.argtypes = [ctypes.py_object]

    def release_none(args, outputs):
        for _ in range(100):
            release(None)

    return _target(backend=_backend(release_none))


def none_kept():
    def keep_none(args, outputs):
        NOTHINGS.append(None)

    return _target(backend=_backend(keep_none))


def guard_on_id():
    import torch._dynamo.config as config

    config.recompile_limit = config.accumulated_recompile_limit = 10_000
    kinds = [type("Kind", (), {"factor": 2}) for _ in range(250)]

    def scale(x, kind):
        return x * kind.factor

    return _target(scale, calls=[((X, kind), {}) for kind in kinds])


def _define_operator(name, body):
    operator = torch.library.custom_op(f"growing::{name}", body, mutates_args=())
    operator.register_fake(lambda x: torch.empty_like(x))
    return operator


def list_in_operator():
    def body(x: torch.Tensor) -> torch.Tensor:
        KEPT_OUTPUTS.append(x.clone())
        return x + 1

    operator = _define_operator("keep", body)
    return _target(lambda x: operator(x) * 2)


class KeepsLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.total = torch.zeros(())

    def forward(self, x):
        out = self.linear(x)
        self.total = self.total + out.mean()
        return out


def autograd_graph():
    model = KeepsLoss()

    def forward(x):
        return model(x)

    return _target(forward, calls=[((X,), {})], train=True)


def cudagraph_pools():
    def record(args, outputs):
        POOLS[len(POOLS)] = [torch.empty_like(value) for value in (*args, *outputs)]

    return _target(backend=_backend(record))


def descriptors():
    def open_file(args, outputs):
        os.open(os.devnull, os.O_RDONLY)

    return _target(backend=_backend(open_file))


class Node:
    def __init__(self, previous):
        self.previous = previous


def chain():
    def add_node(args, outputs):
        global LAST
        LAST = Node(LAST)

    return _target(backend=_backend(add_node))


def c_heap():
    allocate = ctypes.CDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

    def allocate_bytes(args, outputs):
        allocate(1000)

    return _target(backend=_backend(allocate_bytes))


# healthy


def plain():
    return function, (X,)


def trained():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return _target(model, "aot_eager", train=True)


def lru_cache():
    @functools.lru_cache(maxsize=64)
    def table(key):
        return torch.full((16,), float(key))

    count = iter(range(10**9))

    def look_up(args, outputs):
        table(next(count))

    return _target(backend=_backend(look_up))


def last_results():
    kept = collections.deque(maxlen=30)

    def keep_result(args, outputs):
        kept.append(outputs[0].clone())

    return _target(backend=_backend(keep_result))


def several_shapes():
    return _target(calls=[((torch.ones(n, 16),), {}) for n in (2, 3, 4, 8)])


def batch_norm():
    return _target(torch.nn.BatchNorm1d(16), "aot_eager", train=True)


class Scale:
    def __init__(self, factor):
        self.factor = factor


def recompile_limit():
    def scale(x, factor):
        return x * factor.factor

    return _target(scale, calls=[((X, Scale(n + 0.5)), {}) for n in range(12)])


def graph_break():
    def breaks(x):
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return y * 2

    return _target(breaks)


def dropout():
    return _target(torch.nn.Dropout(0.5), "aot_eager", train=True)


def emptied_list():
    kept = []

    def keep_some(args, outputs):
        kept.append(outputs[0].clone())
        if len(kept) == 16:
            kept.clear()

    return _target(backend=_backend(keep_some))


def cycles_and_files():
    def make_cycle(args, outputs):
        cycle = [outputs[0].clone()]
        cycle.append(cycle)
        with tempfile.TemporaryFile():
            pass

    return _target(backend=_backend(make_cycle))


class KeyValues(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(64, 16))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.keys[self.at % 64] = x[0]
        self.at += 1
        return x @ self.keys.T


def ring_of_keys():
    return _target(KeyValues(), "aot_eager")
