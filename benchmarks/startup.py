"""How fast the command line starts: whole processes, in turns, as a ratio to ``python -c "import
click"``.

python benchmarks/startup.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "reprokit --help": [sys.executable, "-m", "reprokit", "--help"],
    "reprokit models --json": [sys.executable, "-m", "reprokit", "models", "--json"],
    "reprokit capture --help": [sys.executable, "-m", "reprokit", "capture", "--help"],
}


def cost(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 2):
        for name, command in COMMANDS.items():
            seen[name].append(cost(command))
    base = [statistics.median(v[i] for v in seen["python -c 'import click'"][2:]) for i in (0, 1)]
    for name, rows in seen.items():
        cpu, wall = (statistics.median(v[i] for v in rows[2:]) for i in (0, 1))
        print(
            f"{name:<28} {cpu * 1e3:6.0f} ms CPU ({cpu / base[0]:.2f} x), {wall * 1e3:6.0f} ms wall"
            f" ({wall / base[1]:.2f} x)"
        )


if __name__ == "__main__":
    main()
