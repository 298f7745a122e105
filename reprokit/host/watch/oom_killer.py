"""Whether the kernel's out-of-memory killer was at work: it leaves a SIGKILL and, where we may read
them, counters.
"""

from __future__ import annotations

import contextlib
import re
import signal

import psutil

from reprokit.host.watch.sampler import ProcessSamples


def oom_kills() -> dict[str, int]:
    """How many times the out-of-memory killer has struck, by the counters that we may read."""
    counts = {}
    for path, pattern in (
        ("/proc/vmstat", r"^oom_kill (\d+)"),
        ("/sys/fs/cgroup/memory.events", r"^oom_kill (\d+)"),
    ):
        with contextlib.suppress(OSError), open(path) as file:
            if found := re.search(pattern, file.read(), re.MULTILINE):
                counts[path] = int(found.group(1))
    return counts


def oom_evidence(before: dict[str, int], status: int | None, samples: ProcessSamples) -> str:
    """Say what points at the killer; only a SIGKILL that is not ours can be its work."""
    if status not in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return ""
    for path, count in oom_kills().items():
        if count > before.get(path, count):
            return f"oom_kill in {path} rose from {before[path]} to {count} during the run"
    total = psutil.virtual_memory().total
    if samples.least_available_bytes < 0.03 * total and samples.peak_rss_bytes > 0.5 * total:
        return (
            f"the target held {samples.peak_rss_bytes / 1e9:.1f} GB and"
            f" {samples.least_available_bytes / 1e9:.2f} GB were left before SIGKILL"
        )
    return ""
