"""How much memory this process may still take."""

from __future__ import annotations

import contextlib
import os


def free_bytes() -> int:
    """Available memory in bytes: the kernel's estimate, or less where a control group's limit is nearer."""
    free = _meminfo_available()
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/memory.max") as file:
            limit = int(file.read())
        with open("/sys/fs/cgroup/memory.current") as file:
            free = min(free, limit - int(file.read()))
    return free


def _meminfo_available() -> int:
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
