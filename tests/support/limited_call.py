"""Call reprokit with limits of memory and CPU time that begin after the start of the interpreter.

Run as ``python -m tests.support.limited_call MEGABYTES SECONDS WORDS...``.
"""

from __future__ import annotations

import importlib
import math
import resource
import sys

from reprokit.cli import main as command_line


def main(megabytes: str, seconds: str, *words: str) -> None:
    """Limit this process, and call reprokit in it."""
    importlib.import_module(f"reprokit.cli.commands.{words[0]}")
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    max_cpu_s = math.ceil(used.ru_utime + used.ru_stime + float(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s))
    max_bytes = size + (int(megabytes) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    sys.argv = ["reprokit", *words]
    command_line.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
