"""Call reprokit with limits of memory and CPU time that begin after the start of the interpreter.

Run as ``python -m tests.support.limited_call MEGABYTES SECONDS WORDS...``. SECONDS are those of a
machine that adds thirty million numbers per second and core; a slower machine gets more.
"""

from __future__ import annotations

import importlib
import math
import resource
import sys
import time

from reprokit.cli import main as command_line

ADDITIONS, REFERENCE_S = 200_000, 0.006


def slowness() -> float:
    """Return how many times slower than the reference machine this one is, at least 1."""
    times = []
    for _ in range(3):
        start, total = time.process_time(), 0
        for number in range(ADDITIONS):
            total += number
        times.append(time.process_time() - start)
    return max(1.0, min(times) / REFERENCE_S)


def main(megabytes: str, seconds: str, *words: str) -> None:
    """Limit this process, and call reprokit in it."""
    importlib.import_module(f"reprokit.cli.commands.{words[0]}")
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    slowness_now = slowness()
    used = resource.getrusage(resource.RUSAGE_SELF)
    max_cpu_s = math.ceil(used.ru_utime + used.ru_stime + float(seconds) * slowness_now)
    resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s))
    max_bytes = size + (int(megabytes) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    sys.argv = ["reprokit", *words]
    command_line.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
