"""Find, measure and kill the processes of a run.

They are found in the process tree, and by the run id in their environment.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterable

import psutil

from reprokit.core.shared.contract import run_names
from reprokit.host.system import guardian, host_log

KILL_TIMEOUT_S = 5.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
MAX_THREADS = 500
"""Threads of one process whose CPU time is read, which limits the cost of sampling."""


def family_of(root_pid: int) -> list[psutil.Process]:
    """Return the root and its descendants, parents first, without zombies.

    Return nothing for process 1, which is never the root of a run.
    """
    if root_pid <= 1:
        return []
    with host_log.suppress(psutil.Error):
        root = psutil.Process(root_pid)
        return [p for p in [root, *root.children(recursive=True)] if _is_alive(p)]
    return []


def describe_family(root_pid: int) -> str:
    """Return ``process 7``, or ``process 7 and 2 processes below it``."""
    below = len(family_of(root_pid)) - 1
    noun = "process" if below == 1 else "processes"
    return f"process {root_pid}" + (f" and {below} {noun} below it" if below > 0 else "")


def marked_processes(run_id: str) -> list[psutil.Process]:
    """Return the processes with the run id in their environment, anywhere in the process tree.

    Raises ValueError for an incomplete run id, because callers kill these processes.
    """
    guardian.check_run_id(run_id)
    mark = f"{run_names.RUN_ID_VARIABLE}={run_id}".encode()
    found = []
    for pid in psutil.pids():
        with host_log.suppress(OSError, psutil.Error):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            process = psutil.Process(pid)
            if _is_alive(process) and pid != os.getpid():
                found.append(process)
    return found


def processes_of_run(run_id: str, guardian_pid: int = 0) -> list[psutil.Process]:
    """Return all processes of a run.

    They are the descendants of its guardian, and the processes with its run id and their
    descendants.
    """
    strays = marked_processes(run_id)
    below = [child for p in strays for child in family_of(p.pid)]
    owned = family_of(guardian_pid)[1:] if guardian_pid else []
    return list({p.pid: p for p in [*owned, *strays, *below]}.values())


def kill_process_tree(root_pid: int, run_id: str, guardian_pid: int = 0) -> list[int]:
    """Kill all processes of a run. Return the pids of those that do not end, because the kernel
    cannot interrupt them.

    The processes are listed before any is killed: when the root ends, its children become children
    of its guardian, or of process 1. Processes that left their session and their parent are found
    by the run id in their environment. The root must not be reaped yet, so that no other process
    has its pid.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while True:
        victims = {
            p.pid: p for p in [*family_of(root_pid), *processes_of_run(run_id, guardian_pid)]
        }
        if not victims:
            return []
        kill_processes(root_pid, victims.values())
        if time.monotonic() > deadline:
            return sorted(victims)
        time.sleep(0.02)  # not psutil's wait: it would reap the root


def kill_processes(root_pid: int, processes: Iterable[psutil.Process]) -> None:
    """Send SIGKILL to the process group of a root that is not reaped, and to each process.

    Compilers can delete their temporary files first.
    """
    if root_pid <= 1:
        raise ValueError(f"process {root_pid} is not the leader of a process group of a run")
    victims = {p.pid for p in processes}
    guardian.end_compilers(victims)
    with host_log.suppress(OSError):
        os.killpg(root_pid, signal.SIGKILL)
    for process in processes:
        with host_log.suppress(psutil.Error):
            process.kill()


def usable_cores() -> int:
    """Return the number of cores that this process may use: of its CPU set and of its cgroup."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with host_log.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = file.read().split()
        if quota != "max":
            cores = min(cores or 1, max(int(quota) // int(period), 1))
    return cores or 1


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, whether or not its parent has reaped it.

    A zombie that has threads has not ended: only its first thread has.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        return (
            text[text.rindex(b")") + 2 :][:1] in b"ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
        )
    except OSError as problem:
        host_log.log_ignored(problem)
        return True


def own_cpu_seconds() -> tuple[float, float]:
    """Return the CPU seconds of this process, and those of its children that have ended."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def descriptor_links(pid: int) -> dict[int, str]:
    """Return what each open descriptor of a process refers to, such as ``socket:[4711]``; only
    those that may be read.
    """
    links = {}
    with host_log.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with host_log.suppress(OSError):  # it was closed since then
                links[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return links


def is_python(pid: int) -> bool:
    """Return whether the program of a process is a Python interpreter, by its file name."""
    with host_log.suppress(OSError):
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return False


def cpu_share(ran_s: float, waited_s: float, span_s: float) -> float:
    """Return the share of the requested CPU time that a process received in ``span_s``: 0 to 1.

    It is 1 for a process that requested almost none.
    """
    requested = ran_s + waited_s
    return min(max(ran_s / requested, 0.0), 1.0) if span_s and requested > 0.2 * span_s else 1.0


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(
            process.is_running()
            and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        )
    except psutil.Error as problem:
        host_log.log_ignored(problem)
        return False


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Return the seconds that all threads of ``pid`` ran, and that they waited for a CPU
    (schedstat).

    Their sum is the CPU time that the process requested. Unlike the CPU usage, it does not depend
    on the load of the machine.
    """
    ran = waited = 0.0
    with host_log.suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task")[:MAX_THREADS]:
            thread_ran, thread_waited = thread_cpu_seconds(pid, task)
            ran, waited = ran + thread_ran, waited + thread_waited
    return ran, waited


def thread_cpu_seconds(pid: int, task: str) -> tuple[float, float]:
    """Return the seconds that a thread ran, and that it waited for a CPU.

    If the kernel has no schedstat, use ``stat``, which has only the first.
    """
    with host_log.suppress(OSError, ValueError, IndexError):
        with (
            host_log.suppress(FileNotFoundError),
            open(f"/proc/{pid}/task/{task}/schedstat") as file,
        ):
            words = file.read().split()
            return int(words[0]) / 1e9, int(words[1]) / 1e9
        with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS, 0.0
    return 0.0, 0.0
