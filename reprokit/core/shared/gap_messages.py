"""Messages of failures that reprokit's simulation causes: what the agent raises and the judge
recognises.
"""

from __future__ import annotations

import re

_SAYS = "reprokit does not simulate "


_OURS = (
    re.compile(rf"{_SAYS}(?P<symbol>[\w.]*\w)"),
    re.compile(r"'(?P<owner>Simulated\w+)' object has no attribute '(?P<symbol>\w+)'"),
)
"""What the agent raises, and its classes that answer for a device."""


_NAMED = (
    *_OURS,
    re.compile(
        r"module '(?P<owner>torch\._C)' has no attribute '(?P<symbol>_[Cc][Uu][Dd][Aa]\w*)'"
    ),
    re.compile(
        r"Tried to instantiate dummy base class"
        r" (?P<symbol>\w*[Cc][Uu][Dd][Aa]\w*|_MemPool|_graph_pool_handle)"
    ),
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


def refusal_message(symbol: str) -> str:
    """The message with which the agent refuses a call that would reach a driver."""
    return f"{_SAYS}{symbol}, which reaches the CUDA driver"


def gap_in_message(message: str, is_gpu: bool) -> tuple[bool, str]:
    """Whether a message is that of a gap, and the symbol that it names; empty where it names none.

    Without a simulated GPU only fake weights are simulated, and only what reprokit put there can be
    missing.
    """
    for pattern in _NAMED if is_gpu else _OURS:
        if found := pattern.search(message):
            owner = found.groupdict().get("owner")
            return True, f"{owner}.{found['symbol']}" if owner else found["symbol"]
    return is_gpu and any(words in message for words in _UNNAMED), ""
