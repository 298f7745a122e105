"""Gaps in reprokit's own simulation of a GPU: which failures of a simulated run are gaps, and the symbol of each."""

from __future__ import annotations

import re

from . import frames as fr
from .records import Link, Observation

CAUSE = "simulation-gap"
_SAYS = "reprokit does not simulate "
_OURS = (
    re.compile(rf"{_SAYS}(?P<symbol>[\w.]*\w)"),
    re.compile(r"'(?P<owner>Simulated\w+)' object has no attribute '(?P<symbol>\w+)'"),
)
"""What the agent raises, and its classes that answer for a device."""
_NAMED = (
    *_OURS,
    re.compile(r"module '(?P<owner>torch\._C)' has no attribute '(?P<symbol>_[Cc][Uu][Dd][Aa]\w*)'"),
    re.compile(r"Tried to instantiate dummy base class (?P<symbol>\w*[Cc][Uu][Dd][Aa]\w*|_MemPool|_graph_pool_handle)"),
    re.compile(r"'NoneType' object has no attribute '(?P<symbol>cuda[A-Z]\w*)'"),
    re.compile(r"name '(?P<symbol>_get_device_properties)' is not defined"),
    re.compile(r"Could not run '(?P<symbol>aten::[\w.]+)' with arguments from the 'CUDA' backend"),
)
"""Messages that name what is missing; a torch without CUDA raises those below ours."""
_UNNAMED = (
    "CUDA driver version is insufficient",
    "CUDA driver initialization failed",
    "CUDA error: ",
    "CUDA unknown error",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "Torch not compiled with CUDA enabled",
    "PyTorch was compiled without CUDA support",
    "libcudart functions unavailable",
    "PyTorch is not linked with support for cuda devices",
    "without ATen_cuda library",
    "no NVIDIA driver on your system",
    "libcuda.so cannot found",
    "active drivers ([",
)
"""Messages of C++ code and of Triton that reach for a driver."""
_ABSENT = re.compile(r"(?P<name>.+), compute capability [\d.]+, is not there")


def gpu(simulated: tuple[str, ...]) -> str:
    """The name of the GPU that ``Observation.simulated`` says is not there; empty where only ranks are simulated."""
    found = _ABSENT.fullmatch(simulated[0]) if simulated else None
    return found["name"] if found else ""


def refusal(symbol: str) -> str:
    """The message with which the agent refuses a call that would reach a driver."""
    return f"{_SAYS}{symbol}, which reaches the CUDA driver"


def of_message(message: str, is_gpu: bool) -> tuple[bool, str]:
    """Whether a message is that of a gap, and the symbol that it names; empty where it names none.

    Without a simulated GPU only fake weights are simulated, and only what reprokit put there can be missing.
    """
    for pattern in _NAMED if is_gpu else _OURS:
        if found := pattern.search(message):
            owner = found.groupdict().get("owner")
            return True, f"{owner}.{found['symbol']}" if owner else found["symbol"]
    return is_gpu and any(words in message for words in _UNNAMED), ""


def of_links(chain: tuple[Link, ...], is_gpu: bool) -> str:
    """The symbol that an exception is a gap for: the one its message names, or the innermost function of torch."""
    for place in reversed(range(len(chain))):
        is_gap, symbol = of_message(chain[place].message, is_gpu)
        if is_gap:
            return symbol or _innermost(chain[: place + 1])
    return ""


def of_crash(seen: Observation) -> str:
    """The same of a process that the C++ runtime ended."""
    is_gap, symbol = of_message(fr.parse_terminate(seen.stderr_tail), is_gpu=True)
    if not is_gap:
        return ""
    frames = [f for fault in seen.faults for f in fault.frames]
    return symbol or _innermost((Link("", "", tuple(frames)),))


def _innermost(chain: tuple[Link, ...]) -> str:
    for link in reversed(chain):
        for frame in fr.normalise(link.frames):
            if frame.file.startswith(("torch/", "triton/")):
                return fr.show(frame)
    return "a function of C++ code"
