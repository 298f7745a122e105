"""Find the process to attach to: by its pid, by a part of its command line, or by its Slurm job."""

from __future__ import annotations

import os
from collections.abc import Sequence

import psutil

from reprokit.core.shared.errors import BadInput
from reprokit.host.system import host_log, process_tree
from reprokit.host.watch import blocked_on

MAX_LISTED = 8
MAX_COMMAND_CHARS = 100


def find_process(pid: int | None, name: str | None = None, job: str | None = None) -> int:
    """Return the process with this pid, or else of this name, or else of this Slurm job.

    Raises BadInput if it cannot be attached to, or unless there is exactly one.
    """
    if name is not None:
        return find_by_name(name)
    if job is not None:
        return find_by_slurm_job(job)
    return check_pid(pid or 0)


def check_pid(pid: int) -> int:
    """Return ``pid``. Raises BadInput if there is no such process, or if it has ended."""
    if not psutil.pid_exists(pid):
        raise BadInput(
            f"there is no process {pid} that this user can see; in a container, run reprokit inside"
            " of it, or give it the pid namespace of the host"
        )
    if process_tree.has_ended(pid):
        raise BadInput(f"process {pid} has ended, and its parent has not waited for it")
    if pid in _own_family():
        raise BadInput(f"process {pid} is reprokit itself or started it; name a different process")
    return pid


def find_by_name(name: str) -> int:
    """Return the process of this user whose command line contains ``name``, without those below a
    process that matches too. Raises BadInput unless there is exactly one.
    """
    own = _own_family()
    found = [
        process.pid
        for process in psutil.process_iter()
        if process.pid not in own and name in _command_line(process)
    ]
    return _only_root(found, f"whose command line contains {name!r}")


def find_by_slurm_job(job: str) -> int:
    """Return the process of a Slurm job on this node, without its children.

    Raises BadInput unless there is exactly one.
    """
    own = _own_family()
    marks = {f"SLURM_JOB_ID={job}".encode()}
    if node := os.environ.get("SLURMD_NODENAME"):  # one machine may have several nodes
        marks.add(f"SLURMD_NODENAME={node}".encode())
    found = []
    for process in psutil.process_iter():
        with host_log.suppress(OSError, psutil.Error):
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                is_of_job = marks <= set(file.read().split(b"\0"))
            if is_of_job and process.pid not in own and process_tree.is_python(process.pid):
                found.append(process.pid)
    return _only_root(found, f"of Slurm job {job} that runs Python on this node")


def _only_root(pids: Sequence[int], what: str) -> int:
    chosen = set(pids)
    roots = [pid for pid in pids if not _is_below(pid, chosen)]
    if not roots:
        raise BadInput(f"there is no process {what}")
    if len(roots) > 1:
        rows = [
            f"{pid} ({blocked_on.redacted_command_line(pid)[:MAX_COMMAND_CHARS]})"
            for pid in roots[:MAX_LISTED]
        ]
        raise BadInput(
            f"there are {len(roots)} processes {what}: {', '.join(rows)}; name one of these pids"
        )
    return roots[0]


def _is_below(pid: int, others: set[int]) -> bool:
    with host_log.suppress(psutil.Error):
        return any(parent.pid in others for parent in psutil.Process(pid).parents())
    return False


def _command_line(process: psutil.Process) -> str:
    with host_log.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _own_family() -> set[int]:
    """Return reprokit itself and its parents."""
    own = psutil.Process(os.getpid())
    return {own.pid, *(parent.pid for parent in own.parents())}
