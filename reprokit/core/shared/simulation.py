"""GPUs that can be simulated: the properties that the compiler reads from a device.

Numbers are from NVIDIA's data sheets and from the table of compute capabilities in the CUDA C++
programming guide. The names of the fields are those of ``torch.cuda.get_device_properties``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import BadInput

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the compiler sees it."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    total_memory: int
    """Bytes."""
    L2_cache_size: int
    """Bytes."""
    max_threads_per_multi_processor: int = 2048
    shared_memory_per_block_optin: int = 232_448
    """Bytes that one block may request."""
    regs_per_multiprocessor: int = 65_536
    warp_size: int = 32

    @property
    def capability(self) -> int:
        """``90`` for compute capability 9.0, as in Triton's ``GPUTarget``."""
        return self.major * 10 + self.minor


_ADA = {"max_threads_per_multi_processor": 1536, "shared_memory_per_block_optin": 101_376}
"""Properties of Ada, which consumer Blackwell shares."""
GPUS = {
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB",
        8,
        0,
        108,
        80 * GIB,
        40 * MIB,
        shared_memory_per_block_optin=166_912,
    ),
    "h100": Gpu("NVIDIA H100 80GB HBM3", 9, 0, 132, 80 * GIB, 50 * MIB),
    "h200": Gpu("NVIDIA H200", 9, 0, 132, 141 * GIB, 50 * MIB),
    "b200": Gpu("NVIDIA B200", 10, 0, 148, 180 * GIB, 126 * MIB),
    "b300": Gpu("NVIDIA B300", 10, 3, 148, 288 * GIB, 126 * MIB),
    "l40s": Gpu("NVIDIA L40S", 8, 9, 142, 48 * GIB, 96 * MIB, **_ADA),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", 8, 9, 128, 24 * GIB, 72 * MIB, **_ADA),
    "rtx5090": Gpu("NVIDIA GeForce RTX 5090", 12, 0, 170, 32 * GIB, 96 * MIB, **_ADA),
}
"""The GPUs that ``--gpu`` accepts, by name."""


def gpu_named(name: str) -> Gpu:
    """Return the GPU of that name; ``NVIDIA H100`` is the same as ``h100``.

    Raises BadInput if no GPU has the name.
    """
    word = (
        name.lower()
        .removeprefix("nvidia")
        .strip(" -_")
        .replace("geforce", "")
        .replace(" ", "")
        .replace("-", "")
    )
    if word in GPUS:
        return GPUS[word]
    raise BadInput(
        f"--gpu {name}: no such GPU is known; use {', '.join(GPUS)}, or a file that reprokit"
        " env --gpu wrote"
    )


def gpu_label(gpu: Mapping[str, object]) -> str:
    """Return the argument of ``--gpu`` for this GPU: its name, or ``gpu.json``."""
    return next(
        (name for name, known in GPUS.items() if dataclasses.asdict(known) == dict(gpu)), "gpu.json"
    )


def read_gpu(properties: Mapping[str, Any], where: str) -> Gpu:
    """Return the GPU with the properties that :func:`dataclasses.asdict` returned or ``reprokit env
    --gpu`` recorded.

    Raises BadInput, with ``where`` as the source, if they are not those of a GPU.
    """
    fields = {f.name: f for f in dataclasses.fields(Gpu)}
    needed = [n for n, f in fields.items() if f.default is dataclasses.MISSING]
    if missing := [n for n in needed if n not in properties]:
        raise BadInput(
            f"{where} has no {', '.join(missing)}; reprokit env --gpu writes such a file on a"
            " machine with a GPU"
        )
    for name, value in properties.items():
        if name not in fields:
            continue
        is_right = (
            isinstance(value, str)
            if name == "name"
            else type(value) is int and 0 <= value < 1 << 50
        )
        if not is_right:
            raise BadInput(f"{where}: {name} is {value!r}, which no device reports")
    gpu = Gpu(**{n: v for n, v in properties.items() if n in fields})
    if (
        not 3 <= gpu.major < 100
        or gpu.minor > 9
        or not gpu.multi_processor_count
        or not gpu.warp_size
    ):
        raise BadInput(
            f"{where}: no GPU has compute capability {gpu.major}.{gpu.minor} and"
            f" {gpu.multi_processor_count} multiprocessors"
        )
    return gpu


_REFUSAL = "reprokit does not simulate "


_OURS = (
    re.compile(rf"{_REFUSAL}(?P<symbol>[\w.]*\w)"),
    re.compile(r"'(?P<owner>Simulated\w+)' object has no attribute '(?P<symbol>\w+)'"),
)
"""Messages of the agent, and of its classes that stand for a device."""


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
"""Messages that name the missing symbol. Those after ``_OURS`` come from a torch without CUDA."""


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
"""Messages of C++ code and of Triton that call a driver. They name no symbol."""


def refusal_message(symbol: str) -> str:
    """Return the message with which the agent refuses a call that would reach a driver."""
    return f"{_REFUSAL}{symbol}, which reaches the CUDA driver"


def gap_in_message(message: str, is_gpu: bool) -> tuple[bool, str]:
    """Return whether a message comes from a gap of the simulation, and the symbol that it names
    (empty if it names none).

    Without a simulated GPU only fake weights are simulated, so only messages of reprokit count.
    """
    for pattern in _NAMED if is_gpu else _OURS:
        if match := pattern.search(message):
            owner = match.groupdict().get("owner")
            return True, f"{owner}.{match['symbol']}" if owner else match["symbol"]
    return is_gpu and any(words in message for words in _UNNAMED), ""
