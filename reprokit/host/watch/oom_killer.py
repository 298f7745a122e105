"""Detect the out-of-memory killer of the kernel by SIGKILL, counters and memory samples."""

from __future__ import annotations

import re
import signal

import psutil

from reprokit.host.system import host_log
from reprokit.host.watch.sampler import ProcessSamples


def count_oom_kills() -> dict[str, int]:
    """Return the readable counters of out-of-memory kills, by path."""
    counts = {}
    for path, pattern in (
        ("/proc/vmstat", r"^oom_kill (\d+)"),
        ("/sys/fs/cgroup/memory.events", r"^oom_kill (\d+)"),
    ):
        with host_log.suppress(OSError), open(path) as file:
            if found := re.search(pattern, file.read(), re.MULTILINE):
                counts[path] = int(found.group(1))
    return counts


def describe_oom_kill(before: dict[str, int], status: int | None, samples: ProcessSamples) -> str:
    """Describe the evidence for an out-of-memory kill; return "" unless the target ended by
    SIGKILL.
    """
    if status not in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return ""
    for path, count in count_oom_kills().items():
        if count > before.get(path, count):
            return f"oom_kill in {path} rose from {before[path]} to {count} during the run"
    total = psutil.virtual_memory().total
    if samples.least_available_bytes < 0.03 * total and samples.peak_rss_bytes > 0.5 * total:
        return (
            f"the target held {samples.peak_rss_bytes / 1e9:.1f} GB and"
            f" {samples.least_available_bytes / 1e9:.2f} GB were left before SIGKILL"
        )
    return ""
