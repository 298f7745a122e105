"""A test suite with an exception, a hang, a crash and healthy tests under ``torch.compile``.

The tests copy it to ``test_compile.py``: pytest does not collect this name.
"""

import threading

import pytest
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

lock = threading.Lock()


class WaitsForItself(CustomGraphPass):
    def __call__(self, graph):
        with lock, lock:
            pass

    def uuid(self):
        return None


@pytest.fixture(scope="module")
def compiled_linear():
    return torch.compile(torch.nn.Linear(8, 4))


def test_shape(compiled_linear):
    assert compiled_linear(torch.ones(2, 8)).shape == (2, 4)


def test_exception():
    """Outer-loop fusion in the C++ backend loses a buffer (pytorch#196570)."""

    def masked_softmax(x):
        mask = torch.full((8, 8), -10000.0)
        mask[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
        return torch.softmax(x + mask, dim=-1)

    torch.compile(masked_softmax)(torch.randn(8, 8))


def test_crash():
    """A nested jacfwd of a trace term is killed by SIGSEGV (pytorch#190856)."""

    def energy(t):
        return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(3, dtype=t.dtype)))

    tensor = torch.rand(3, 3, dtype=torch.float64) + 0.1
    torch.compile(torch.func.jacfwd(torch.func.jacfwd(energy)))(tensor)


def test_hang(monkeypatch):
    """A custom pass on Inductor's graph waits for a lock that its own thread holds."""
    monkeypatch.setattr(
        "torch._inductor.config.post_grad_custom_post_pass", WaitsForItself(), raising=True
    )
    torch.compile(lambda x: torch.relu(x @ x).sum())(torch.randn(16, 16))


def test_eager_failure():
    """A failure without torch.compile is the suite's own."""
    raise ValueError("not of the compiler")


def test_dtype(compiled_linear):
    assert compiled_linear(torch.ones(2, 8)).dtype == torch.float32
