"""How much memory this process may still take."""

from __future__ import annotations

import contextlib
import os

_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes() -> int:
    """Available memory in bytes: the kernel's estimate, or less where a control group's limit is nearer."""
    free = _meminfo_available()
    for limit, used in _GROUPS:
        with contextlib.suppress(OSError, ValueError), open(limit) as limit_file, open(used) as used_file:
            free = min(free, int(limit_file.read()) - int(used_file.read()))
    return max(free, 0)


def _meminfo_available() -> int:
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
