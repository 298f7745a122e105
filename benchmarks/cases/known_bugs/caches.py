"""Failures that show only in a process that reads the cache of compiled graphs of another process.

Each factory is a target of ``reprokit capture --caches``. A function that is registered with atexit
damages the cache as a killed process or a broken disk does.
"""

import atexit
import os
import time
from pathlib import Path

import torch
import torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass


def healthy():
    """Nothing fails in any stage."""
    return function, (torch.ones(64),)


def killed_writer():
    """Leave empty shared libraries, as a g++ that is killed."""
    atexit.register(replace_files, "*.main.so", 0)
    return function, (torch.ones(64),)


def poisoned_entry():
    """Cut the entries of both caches of graphs."""
    atexit.register(replace_files, "fxgraph/*/*/*", 100)
    atexit.register(replace_files, "aotautograd/*/*", 100)
    return function, (torch.ones(64),)


def stale_key():
    """Use a pass that depends on the variable FACTOR, which its uuid does not contain."""
    torch._inductor.config.post_grad_custom_post_pass = Constant()
    return scaled, (torch.ones(64),)


def hanging_key():
    """Use a pass whose uuid waits where the cache has entries."""
    torch._inductor.config.post_grad_custom_post_pass = Waits()
    return function, (torch.ones(64),)


def failing_guard():
    """Use a number that is different in each process, so that a guard of kept code fails.

    Torch 2.13 then raises an AssertionError when it compiles the function again.
    """
    return numbered, (torch.ones(64),)


def function(x):
    """Return a value that takes one kernel."""
    return (x.sin() + 1).relu()


PROCESS = os.getpid()


def numbered(x):
    """Return a value that depends on the number of the process only by a guard."""
    return x.sin() + 1 if PROCESS else x


def scaled(x):
    """Return a value with a custom operator."""
    return scale(x.sin()) + 1


def replace_files(pattern, size):
    """Replace the files of the cache by their first bytes; this process may still use the old ones."""
    for path in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob(pattern):
        content = path.read_bytes()[:size]
        path.unlink()
        path.write_bytes(content)


def factor():
    """Return the factor of ``scale``."""
    return float(os.environ.get("FACTOR", "2"))


@torch.library.custom_op("stale::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    """Multiply by the factor."""
    return x * factor()


@scale.register_fake
def _(x):
    return torch.empty_like(x)


class Constant(CustomGraphPass):
    """Replaces ``scale`` by a multiplication with the factor of this process."""

    def __call__(self, graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.stale.scale.default):
            node.target, node.args = torch.ops.aten.mul.Tensor, (node.args[0], factor())

    def uuid(self):
        return "1"


class Waits(CustomGraphPass):
    """Waits for ever if the cache has an entry."""

    def __call__(self, graph):
        pass

    def uuid(self):
        while any(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).glob("fxgraph/*/*/*")):
            time.sleep(1)
        return "1"
