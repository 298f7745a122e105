"""Whether the driver of a real GPU is needed or started in this process.

The answers are from the build of torch and from files. Torch itself would start the driver to
answer, and a driver does not survive a fork.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
from collections.abc import Iterator

from .. import simulate

DEVICE_FILES = {
    "cuda": ("/dev/nvidia[0-9]*", "/dev/dxg"),
    "hip": ("/dev/kfd", "/dev/dxg"),
    "xpu": ("/dev/dri/renderD*",),
}
"""Name in ``torch.version`` -> patterns of the device files that the driver of this build opens."""
_OPENED = ("/dev/nvidia-uvm", "/dev/dxg", "/dev/kfd", "/dev/dri/")
"""Files that a driver opens for a program that computes. NVML opens others, except on some
machines: on an H200 with driver 580 it opened ``/dev/nvidia-uvm`` and left a thread.
"""
CHILD_TIMEOUT_S = 60
_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With this variable, ``torch.cuda.is_available`` asks NVML, which does not start the driver."""


def is_needed() -> bool:
    """Return whether torch may use a GPU of this machine, which it does not simulate."""
    import torch

    if simulate.REQUEST is not None:
        return False
    builds = [name for name in DEVICE_FILES if getattr(torch.version, name, None)]
    return any(glob.glob(pattern) for name in builds for pattern in DEVICE_FILES[name])


@contextlib.contextmanager
def asking_nvml() -> Iterator[None]:
    """Import modules of torch that ask for a GPU, without a start of the driver.

    ``torch._inductor.runtime.benchmarking`` of torch 2.9 to 2.12 asks.
    """
    before = os.environ.get(_ASK_NVML)
    os.environ[_ASK_NVML] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ASK_NVML]
        else:
            os.environ[_ASK_NVML] = before


def is_started() -> bool:
    """Return whether this process has started the driver of a GPU."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith(_OPENED):
                return True
    return False


def works_in_child() -> bool:
    """Return whether a forked child can compute on the GPU, whatever this process has opened."""
    import torch

    device = next((name for name in ("cuda", "xpu") if getattr(torch.version, name, None)), "cuda")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(CHILD_TIMEOUT_S)  # its default action ends a child that waits for a lock
            status = int(torch.ones(2, device=device).sum().item() != 2)
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended) == 0
