"""Measure what a target may take and what it takes: free memory, and seconds of calls."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ...core.shared.contract import events
from ..record import journal

WARM_UPS = 2
MOST_BLOCKS = 40
LEAST_BLOCK_S = 0.02
"""A block repeats its calls until it takes so long: a clock and an interpreter measure no shorter
time well.
"""


def time_calls(
    torch: Any, eager: Callable[[], None], compiled: Callable[[], None], budget_s: float
) -> None:
    """Time ``eager`` and ``compiled`` in turns for ``budget_s``, and journal seconds a call as
    ``speed``.
    """
    for _ in range(WARM_UPS):
        eager()
        compiled()
    once = min(_timed(torch, eager, 1), _timed(torch, compiled, 1))
    repeats = max(1, int(LEAST_BLOCK_S / max(once, 1e-7)))
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    ends = time.monotonic() + budget_s
    while len(times["eager"]) < MOST_BLOCKS and (
        time.monotonic() < ends or len(times["eager"]) < 3
    ):
        times["eager"].append(_timed(torch, eager, repeats))
        times["compiled"].append(_timed(torch, compiled, repeats))
    journal.write(
        events.CallsTimed(eager=times["eager"], compiled=times["compiled"], repeats=repeats)
    )


def _timed(torch: Any, call: Callable[[], None], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats


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
