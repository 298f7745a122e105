"""Take the stacks of a whole process tree, from outside (py-spy) and from inside (faulthandler).

Both work while native code holds the GIL; py-spy reads memory without stopping the process
(``--nonblocking``), so it works on stopped and uninterruptible ones too. Every tool has a hard timeout.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..core import frames as fr
from ..core.records import Dump
from . import files, tree

ROUNDS = 3
GAP_S = 1.0
PY_SPY_TIMEOUT_S = 10.0
PY_SPY_TRIES = 3
"""A running stack may change while it is read without stopping the process."""
FAULTHANDLER_TIMEOUT_S = 1.0
MOST_PROCESSES = 32
BUSY_SHARE = 0.6


@dataclass(frozen=True)
class Stacks:
    """What was dumped, and of what."""

    dumps: tuple[Dump, ...]
    commands: dict[str, str]
    busy_pids: tuple[int, ...]
    """Processes that wanted more than 60 % of one processor while the dumps were taken."""
    problems: tuple[str, ...]


def take(run_path: Path, root_pid: int, can_dump: frozenset[int]) -> Stacks:
    """Dump every process of the tree three times, a second apart, into ``stacks/<n>-<tool>-<pid>.*``."""
    processes = tree.family(root_pid)
    commands = {str(p.pid): _command(p) for p in processes}
    pythons = [p.pid for p in processes if p.pid in can_dump or _is_python(p)][:MOST_PROCESSES]
    folder = run_path / "stacks"
    dumps: list[Dump] = []
    problems: list[str] = []
    wanted, began = {p.pid: tree.want_s(p.pid) for p in processes}, time.monotonic()
    tool = py_spy()
    if tool is None:
        problems.append("py-spy is not installed beside reprokit: stacks from outside are missing")
    with ThreadPoolExecutor(max_workers=4) as pool:
        for number in range(1, ROUNDS + 1):
            jobs = [pool.submit(_py_spy, tool, folder, number, pid) for pid in pythons] if tool else []
            dumps += [
                _faulthandler(folder, number, pid) for pid in pythons if pid in can_dump and psutil.pid_exists(pid)
            ]
            dumps += [job.result() for job in jobs]
            if number < ROUNDS:
                time.sleep(GAP_S)
    span = max(time.monotonic() - began, 1e-3)
    busy = tuple(pid for pid, before in wanted.items() if (tree.want_s(pid) - before) / span > BUSY_SHARE)
    problems += sorted({f"{d.tool} of process {d.pid}: {d.problem}" for d in dumps if d.problem})
    return Stacks(tuple(dumps), commands, busy, tuple(problems))


def py_spy() -> str | None:
    """Where the py-spy that came with reprokit lies, else one on PATH."""
    for folder in (os.path.dirname(sys.executable), sysconfig.get_path("scripts")):
        path = os.path.join(folder, "py-spy")
        if os.access(path, os.X_OK):
            return path
    return shutil.which("py-spy")


def _py_spy(tool: str, folder: Path, number: int, pid: int) -> Dump:
    command = [tool, "dump", "--nonblocking", "--json", "--full-filenames", "--pid", str(pid)]
    said = ""
    for _ in range(PY_SPY_TRIES):
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=PY_SPY_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            return Dump(number, "py-spy", pid, problem=f"gave nothing in {PY_SPY_TIMEOUT_S:.0f} s")
        except OSError as problem:
            return Dump(number, "py-spy", pid, problem=str(problem))
        text = done.stdout.decode("utf-8", "replace")
        try:
            threads = fr.parse_py_spy(text, pid)
        except ValueError:
            said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0] or f"exit status {done.returncode}"
            continue
        with contextlib.suppress(OSError):
            files.write_whole(folder / f"{number}-py-spy-{pid}.json", text)
        return Dump(number, "py-spy", pid, tuple(threads))
    return Dump(number, "py-spy", pid, problem=said[:300])


def _faulthandler(folder: Path, number: int, pid: int) -> Dump:
    """Ask the process itself: SIGUSR2 makes faulthandler append all threads to its file."""
    path = folder / f"faulthandler-{pid}.txt"
    try:
        before = path.stat().st_size
        if not _catches_usr2(pid):
            return Dump(number, "faulthandler", pid, problem="the process has taken SIGUSR2 for itself")
        os.kill(pid, signal.SIGUSR2)
    except OSError as problem:
        return Dump(number, "faulthandler", pid, problem=str(problem))
    deadline, size = time.monotonic() + FAULTHANDLER_TIMEOUT_S, before
    while time.monotonic() < deadline:
        time.sleep(0.01)
        now = path.stat().st_size
        if now > before and now == size:
            break
        size = now
    with path.open("rb") as file:
        file.seek(before)
        text = file.read().decode("utf-8", "replace")
    if not text:
        return Dump(number, "faulthandler", pid, problem="gave nothing (a stopped process runs no handler)")
    with contextlib.suppress(OSError):
        files.write_whole(folder / f"{number}-faulthandler-{pid}.txt", text)
    return Dump(number, "faulthandler", pid, tuple(fr.parse_faulthandler(text, pid)))


def _catches_usr2(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & 1 << (signal.SIGUSR2 - 1))
    return False


def _is_python(process: psutil.Process) -> bool:
    try:
        return "python" in os.path.basename(process.exe() or process.name())
    except psutil.Error:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:2000] or f"[{process.name()}]"
    except psutil.Error as problem:
        return f"<{problem}>"
