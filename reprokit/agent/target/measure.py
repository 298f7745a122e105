"""Measure the free memory for a target, and wait for its GPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def await_gpu() -> None:
    """Wait until the GPU has done its work. Errors of a kernel are raised here at the latest."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def free_bytes() -> int:
    """Return the available memory: the kernel's estimate, or less if a control group limits it."""
    free = _meminfo_available()
    for folder, limit, used in _control_groups():
        with contextlib.suppress(OSError, ValueError):
            left = int(_read_text(f"{folder}/{limit}")) - int(_read_text(f"{folder}/{used}"))
            free = min(free, left + _page_cache(folder))
    return max(free, 0)


def _control_groups() -> Iterator[tuple[str, str, str]]:
    """Yield the folder, limit file and usage file of this process's control groups and parents."""
    with contextlib.suppress(OSError):
        for line in _read_text("/proc/self/cgroup").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":
                top, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
            elif "memory" in kinds.split(","):
                top, names = (
                    "/sys/fs/cgroup/memory",
                    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
                )
            else:
                continue
            parts = [p for p in path.split("/") if p]
            for depth in range(len(parts) + 1):
                yield ("/".join([top, *parts[:depth]]), *names)


def _page_cache(folder: str) -> int:
    """Return the bytes of page cache: they count as used, and the kernel frees them on demand."""
    for line in _read_text(f"{folder}/memory.stat").splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0


def _meminfo_available() -> int:
    with contextlib.suppress(OSError):
        for line in _read_text("/proc/meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_text(path: str) -> str:
    with open(path) as file:
        return file.read()
