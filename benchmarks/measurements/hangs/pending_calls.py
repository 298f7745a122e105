"""Compare ways to run a line of Python in a program that was started without preparation.

python -m benchmarks run pending_calls [--only WAY ...] [--python PATH ...] [--repeat 4]

Each program compares numbers, counts signals, forks or sleeps while the line is run, and fails if
one of them differs. ``own`` is what ``attach --graphs`` uses on x86-64, ``gdb`` what it uses on
other processors, and ``hypno`` the package of that name, which loads a library into the process
with pyinjector. What stays behind are mappings of memory that the program did not have before.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reprokit.host.attach.inside import gdb_calls, pending_call
from reprokit.host.attach.inside.injection import CannotRunInside

from ...harness import quiet_environ, show_progress
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

COLUMNS = (
    Column("way", "way"),
    Column("python", "Python"),
    Column("programs", "programs"),
    Column("ran", "ran the line"),
    Column("alive", "went on to their end"),
    Column("clean", "nothing left behind"),
    Column("seconds", "s, median", 3),
)
Add = Callable[[int, Path, str], Callable[[], None]]
"""Runs a line in a process, and returns a function that removes what this left there."""
WAYS = ("own", "gdb", "hypno")
LOOP = """
import math, os, signal, subprocess, sys, threading, time
numbers = [math.sin(i) * math.exp(-i / 100) for i in range(200)]
counts = [0]
print("ready", flush=True)
{before}
while not os.path.exists("go"):
    {body}
{after}
print("ok", flush=True)
"""
PROGRAMS = {
    "loop": ("", "sum(range(1000))", ""),
    "numbers": (
        "",
        "assert [math.sin(i) * math.exp(-i / 100) for i in range(200)] == numbers",
        "",
    ),
    "sleep": ("", "time.sleep(0.02)", ""),
    "signals": (
        "signal.signal(signal.SIGALRM, lambda *_: counts.__setitem__(0, counts[0] + 1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)",
        "sum(range(1000))",
        "signal.setitimer(signal.ITIMER_REAL, 0)\nassert counts[0] > 10",
    ),
    "processes": ("", "assert subprocess.run(['true']).returncode == 0", ""),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of ways and interpreters."""
    add_only_option(parser, WAYS, "way")
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], metavar="PATH", help="interpreters"
    )
    parser.add_argument("--repeat", type=int, default=4, help="runs of each program")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each way and interpreter."""
    for way in options.only:
        for python in options.python:
            runs = [
                run_once(way, python, program)
                for program in PROGRAMS.values()
                for _ in range(options.repeat)
            ]
            version = subprocess.check_output([python, "-V"], text=True).split()[1]
            yield {
                "way": way,
                "python": version,
                "programs": len(runs),
                "ran": sum(run[0] for run in runs),
                "alive": sum(run[1] for run in runs),
                "clean": sum(run[2] for run in runs),
                "seconds": statistics.median(run[3] for run in runs),
            }


def run_once(
    way: str, python: str, program: tuple[str, str, str]
) -> tuple[bool, bool, bool, float]:
    """Return whether the line ran, the program went on, nothing was left, and the seconds."""
    before, body, after = program
    text = LOOP.format(before=before, body=body, after=after)
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [python, "-c", text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=quiet_environ(),
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        maps, mark = _mappings(process.pid), Path(folder, "ran")
        began = time.monotonic()
        try:
            remove = _ADD[way](process.pid, Path(folder), f"open({str(mark)!r}, 'w').close()")
            while not mark.exists() and time.monotonic() - began < 10:
                time.sleep(0.005)
            remove()
        except (CannotRunInside, OSError, subprocess.SubprocessError) as problem:
            show_progress(f"{way}: {problem}")
        seconds = time.monotonic() - began
        time.sleep(0.2)
        is_clean = _mappings(process.pid) <= maps
        Path(folder, "go").touch()
        try:
            output, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            output = "did not end"
        is_alive = process.returncode == 0 and output.endswith("ok\n")
        return mark.exists(), is_alive, is_clean, seconds


def _add_with(caller: Callable[[int], pending_call.Caller]) -> Add:
    def add(pid: int, folder: Path, line: str) -> Callable[[], None]:
        call = pending_call.PendingCall(pid, caller(pid))
        program = folder / "program.py"
        program.write_text(f"{line}\n")
        call.start(program)
        return call.remove

    return add


def _add_with_hypno(pid: int, folder: Path, line: str) -> Callable[[], None]:
    code = f"import hypno; hypno.inject_py({pid}, {line!r})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
    return lambda: None


_ADD: dict[str, Add] = {
    "own": _add_with(pending_call.choose_caller),
    "gdb": _add_with(gdb_calls.GdbCaller),
    "hypno": _add_with_hypno,
}


def _mappings(pid: int) -> set[str]:
    """Return the mappings of files and single pages. The heap and arenas grow by themselves."""
    found = set()
    for row in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = row.split()
        begin, end = (int(word, 16) for word in words[0].split("-"))
        if (len(words) > 5 and words[5].startswith("/")) or end - begin == pending_call.PAGE_BYTES:
            found.add(row)
    return found


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
