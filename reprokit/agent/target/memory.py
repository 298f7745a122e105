"""How much memory this process may still take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def free_bytes() -> int:
    """Available memory in bytes: the kernel's estimate, or less where a control group's limit is
    nearer.
    """
    free = _meminfo_available()
    for folder, limit, used in _groups():
        with contextlib.suppress(OSError, ValueError):
            room = int(_read(f"{folder}/{limit}")) - int(_read(f"{folder}/{used}")) + _cache(folder)
            free = min(free, room)
    return max(free, 0)


def _groups() -> Iterator[tuple[str, str, str]]:
    """Our control groups and all above them, of both versions: each may have a limit."""
    with contextlib.suppress(OSError):
        for line in _read("/proc/self/cgroup").splitlines():
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


def _cache(folder: str) -> int:
    """Page cache counts as used, and goes when memory is wanted."""
    for line in _read(f"{folder}/memory.stat").splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0


def _meminfo_available() -> int:
    with contextlib.suppress(OSError):
        for line in _read("/proc/meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
