"""The target's processes: found through the family tree and through the run id in their
environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

import psutil

from reprokit.core.shared.contract import run_names
from reprokit.host.system import guardian

KILL_PATIENCE_S = 5.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
MOST_THREADS = 500
"""Of one process, so that a program with thousands costs no more to watch."""


def family_of(root_pid: int) -> list[psutil.Process]:
    """The root and all its living descendants, parents first; zombies are not alive. Process 1 is
    never a root.
    """
    if root_pid <= 1:
        return []
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(root_pid)
        return [p for p in [root, *root.children(recursive=True)] if _is_alive(p)]
    return []


def marked_processes(run_id: str) -> list[psutil.Process]:
    """Processes with the run id in their environment, anywhere in the process tree.

    The caller may kill them, so a text that is not a complete run id raises ValueError.
    """
    guardian.check_processes(run_id)
    mark = f"{run_names.RUN_ID_VARIABLE}={run_id}".encode()
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            process = psutil.Process(pid)
            if _is_alive(process) and pid != os.getpid():
                found.append(process)
    return found


def processes_of_run(run_id: str, guardian_pid: int = 0) -> list[psutil.Process]:
    """All processes of a run: below its guardian, with its mark, or below a process with its
    mark.
    """
    strays = marked_processes(run_id)
    below = [child for p in strays for child in family_of(p.pid)]
    owned = family_of(guardian_pid)[1:] if guardian_pid else []
    return list({p.pid: p for p in [*owned, *strays, *below]}.values())


def kill_all(root_pid: int, run_id: str, guardian_pid: int = 0) -> list[int]:
    """End the whole tree; gives the pids that do not end (uninterruptible in the kernel).

    It takes a snapshot first: when the root ends, its children become children of its guardian, or
    of process 1 if it has none. SIGKILL also ends stopped processes. The environment finds
    processes that left their session and their parent. The root must not be reaped yet, so that no
    other process has its pid.
    """
    deadline = time.monotonic() + KILL_PATIENCE_S
    while True:
        victims = {
            p.pid: p for p in [*family_of(root_pid), *processes_of_run(run_id, guardian_pid)]
        }
        if not victims:
            return []
        end_tree(root_pid, victims.values())
        if time.monotonic() > deadline:
            return sorted(victims)
        time.sleep(0.02)  # not psutil's wait: it would reap the root


def end_tree(root_pid: int, processes: Iterable[psutil.Process]) -> None:
    """Send SIGKILL to the process group of an unreaped root, and to each process; compilers first
    clean up.
    """
    if root_pid <= 1:
        raise ValueError(f"process {root_pid} leads no group of ours")
    victims = {p.pid for p in processes}
    guardian.end_compilers(victims)
    with contextlib.suppress(OSError):
        os.killpg(root_pid, signal.SIGKILL)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def has_ended(pid: int) -> bool:
    """A program is a zombie; its parent has not reaped it, so that its pid stays its own.

    A zombie with threads is a program whose first thread has ended before the others.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        return (
            text[text.rindex(b")") + 2 :][:1] in b"ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
        )
    except OSError:
        return True


def processor_share(ran_s: float, waited_s: float, span_s: float) -> float:
    """Of the processor time that was wanted in ``span_s``, what was got: 0 to 1, and 1 where next
    to none was wanted.
    """
    wanted = ran_s + waited_s
    return min(max(ran_s / wanted, 0.0), 1.0) if span_s and wanted > 0.2 * span_s else 1.0


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(
            process.is_running()
            and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        )
    except psutil.Error:
        return False


def processor_s(pid: int) -> tuple[float, float]:
    """Seconds that all threads of ``pid`` ran, and that they waited for a processor (schedstat).

    Their sum is what it wanted: load-proof, unlike cpu%.
    """
    ran = waited = 0.0
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task")[:MOST_THREADS]:
            mine = thread_s(pid, task)
            ran, waited = ran + mine[0], waited + mine[1]
    return ran, waited


def thread_s(pid: int, task: str) -> tuple[float, float]:
    """The same of one thread; where the kernel keeps no schedstat, what it ran, from stat."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with (
            contextlib.suppress(FileNotFoundError),
            open(f"/proc/{pid}/task/{task}/schedstat") as file,
        ):
            words = file.read().split()
            return int(words[0]) / 1e9, int(words[1]) / 1e9
        with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS, 0.0
    return 0.0, 0.0
