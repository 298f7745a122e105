"""The jobs of the services: one that works, and those that lock up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading

import torch

PEER = """
import datetime, sys, time
import torch.distributed as dist
dist.init_process_group("gloo", init_method=sys.argv[1], rank=1, world_size=2,
    timeout=datetime.timedelta(hours=1))
time.sleep(100000)
"""


class _HangingPass:
    """A custom pass of Inductor that does not end."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        threading.Event().wait()

    def uuid(self) -> None:
        return None


@torch.library.custom_op("services::spin", mutates_args=())
def spin(x: torch.Tensor) -> torch.Tensor:
    while True:
        x = x + 1


@spin.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Jobs:
    """Runs jobs by their names."""

    def __init__(self) -> None:
        layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(4)]
        self._model = torch.compile(torch.nn.Sequential(*layers))
        self._input = torch.randn(64, 256)
        self._lock = threading.Lock()
        with torch.no_grad():
            self._model(self._input)

    def run(self, name: str) -> None:
        """Run one job; all but ``work`` do not return."""
        with torch.no_grad():
            getattr(self, f"_{name}")()

    def _work(self) -> None:
        for _ in range(50):
            self._model(self._input)

    def _compiler(self) -> None:
        torch._inductor.config.post_grad_custom_pre_pass = _HangingPass()
        torch.compile(lambda x: x * 2 + 1)(self._input)

    def _compiled_code(self) -> None:
        torch.compile(lambda x: spin(x * 2))(self._input)

    def _collective(self) -> None:
        import torch.distributed as dist

        place = f"file://{tempfile.mkdtemp()}/store"
        subprocess.Popen([sys.executable, "-c", PEER, place])
        dist.init_process_group("gloo", init_method=place, rank=0, world_size=2)
        dist.all_reduce(self._input)

    def _blocked(self) -> None:
        self._lock.acquire()
        self._lock.acquire()


def announce(server: socket.socket | None = None) -> None:
    """Print the port of a server, or that a worker is ready."""
    print(server.getsockname()[1] if server else os.getpid(), flush=True)
