"""Recognise what a failing program lacks: a package, a version, a device, the network, a file,
memory, an instruction set or other ranks.

Such a failure says nothing about the failure that an issue reports.
"""

from __future__ import annotations

import re

_NEEDS: dict[str, tuple[str, ...]] = {
    "it needs the package {name}, which this interpreter does not have": (
        r"No module named '(?P<name>[\w.]+)'",
    ),
    "it needs a version that has {name}": (
        r"cannot import name '(?P<name>\w+)' from '(?:torch|triton)\b",
        r"module '(?:torch|triton)[\w.]*' has no attribute '(?P<name>\w+)'",
        r"(?P<name>torch\._\w+\.config\.\w+) does not exist",
    ),
    "it needs {name}, which this interpreter does not have": (r"ImportError: (?P<name>.+)",),
    "it needs a different version: {what}": (
        r"requires? (?:at least )?(?:torch|PyTorch|transformers|triton|Python)\W{0,4}[<>=#\d]",
        r"requires? (?:torch|PyTorch|transformers|triton|Python) version",
        r"Python [#\d]\S* (?:is )?not (?:yet )?supported",
    ),
    "it needs a device that this machine does not have: {what}": (
        r"Found no NVIDIA driver|no NVIDIA GPU|no CUDA GPUs|No HIP GPUs|No XPU devices|\bMPS\b",
        r"CUDA driver|0 active drivers|libcuda|CUDA_HOME|nvcc(?: was)? not found",
        r"Torch not compiled|not compiled with CUDA|not linked with support for",
        r"Cannot find a working triton|[Cc]annot access accelerator|no kernel image is available",
        r"CUDA is (?:not available|unavailable|required)|requires? (?:a )?(?:CUDA|GPU|NVIDIA)\b",
        r"Attempting to deserialize object on a CUDA device|doesn't have NCCL",
    ),
    "it needs the network: {what}": (
        r"Name or service not known|[Nn]ame resolution|Network is unreachable|gaierror|URLError",
        r"Max retries exceeded|[Ww]e couldn't connect|HTTPSConnectionPool|ConnectionError",
        r"Connection refused|LocalEntryNotFoundError|OfflineMode|ConnectTimeout|ProxyError",
        r"Can't load (?:tokenizer|the configuration|config)",
    ),
    "it needs a file or a right that it does not have here: {what}": (
        r"FileNotFoundError|No such file or directory|NotADirectoryError",
        r"Read-only file system|PermissionError|Permission denied|Operation not permitted",
    ),
    "it needs more memory or space than it has here: {what}": (
        r"MemoryError|OutOfMemoryError|out of memory|[Cc]an(?:'t|not) allocate memory",
        r"not enough memory|DefaultCPUAllocator|No space left on device|Disk quota exceeded",
    ),
    "it needs an instruction set that this processor does not have: {what}": (
        r"SIGILL|[Ii]llegal instruction|needs the CPU support",
        r"(?:CPU|processor) (?:does not|doesn't) support|requires? (?:AVX|AMX|VNNI|SVE|avx|amx)",
    ),
    "it needs the other ranks of a distributed program: {what}": (
        r"environment variable \w+ expected, but not set|Could not resolve the process group",
        r"Default process group has not been initialized",
    ),
}
"""What is missing, as a clause -> the messages of programs that lack it."""
_PATTERNS = [
    (re.compile(pattern), words) for words, patterns in _NEEDS.items() for pattern in patterns
]


def missing_requirement(what: str) -> str:
    """Return what a program lacks, as a clause; empty if its failure says nothing about that.

    ``what`` is ``TYPE: MESSAGE`` of its exception, or the signal that killed it.
    """
    for pattern, words in _PATTERNS:
        if found := pattern.search(what):
            return words.format(what=what, **found.groupdict())
    return ""
