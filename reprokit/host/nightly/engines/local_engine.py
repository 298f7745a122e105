"""Run the jobs of a nightly run on this machine, within its cores, memory and GPUs."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from reprokit.host.nightly.jobs.job import kill_child
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.schedule.night import Night, NightJob
from reprokit.host.system import compiler_cache, deletion, files, host_log, interrupts, process_tree
from reprokit.host.system.child_commands import CommandFailed, own_command
from reprokit.host.watch import gpu_vendors

POLL_S, SHOW_S = 0.1, 1.0
MAX_OVERTAKEN = 8
"""How many smaller jobs may start before a large job that waits; then the machine is kept free."""
DEFAULT_EXPECTED_S = 60.0
"""The expected time of a job that never ran."""

FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Problems of the machine, not of one job: the nightly run stops and can be resumed later."""

Show = Callable[[str], None]


@dataclass
class MachineResources:
    """The resources of this machine."""

    cores: int
    memory_bytes: float
    gpus: list[str] = field(default_factory=list)
    """Their names in ``CUDA_VISIBLE_DEVICES``."""


@dataclass
class _Running:
    job: NightJob
    child: subprocess.Popen[bytes]
    gpus: list[tuple[str, IO[bytes]]]
    began: float


def this_machine(cores: int | None = None) -> MachineResources:
    """Return the resources of this machine; ``cores`` is the limit of the user."""
    return MachineResources(
        min(cores or process_tree.usable_cores(), 10_000),
        psutil.virtual_memory().available * 0.9,
        _gpus(),
    )


def run_on_machine(
    work: Night, machine: MachineResources, show: Show, say: Callable[[str], None]
) -> None:
    """Run the remaining jobs.

    Raises:
        KeyboardInterrupt: the user interrupted, and all running jobs have ended.
    """
    waiting = sorted(work.left, key=lambda job: -(job.expected_s or DEFAULT_EXPECTED_S))
    running: list[_Running] = []
    overtaken, next_show = 0, 0.0
    if compiler_cache.delete_partial_headers():
        say(
            "removed an incomplete precompiled header of a killed g++, which made C++ builds"
            " several times slower"
        )
    try:
        with interrupts.allowed():
            while waiting or running:
                interrupts.raise_if_interrupted()
                over = [r for r in running if r.child.poll() is not None or _is_over(r)]
                for ended in over:
                    running.remove(ended)
                    _end(ended, work)
                if over:
                    # the jobs that start next need the signatures of these results
                    night.collect_results(work, [r.job for r in running])
                for job in list(waiting):
                    if job.gpus > len(machine.gpus):
                        wanted = f"{job.gpus} GPU{'s' if job.gpus > 1 else ''}"
                        night.record_lost_job(
                            work,
                            job,
                            f"it needs {wanted}, and this machine has {len(machine.gpus)}",
                        )
                        waiting.remove(job)
                    elif (gpus := _room(job, running, machine)) is not None:
                        overtaken = overtaken + 1 if job is not waiting[0] else 0
                        waiting.remove(job)
                        running += _start(job, gpus, work)
                    elif overtaken >= MAX_OVERTAKEN and not job.gpus:
                        # not for a GPU, which other users may keep for long
                        break
                if time.monotonic() >= next_show:
                    show(night_status(work, [r.job for r in running], machine))
                    next_show = time.monotonic() + SHOW_S
                time.sleep(POLL_S)
    finally:
        for left in running:
            kill_child(left.child)
            _free(left)
    night.collect_results(work)


def night_status(work: Night, running: list[NightJob], machine: MachineResources) -> str:
    """Return the progress of the nightly run in one line, with an estimate of the time left."""
    left = work.left
    names = ", ".join(job.label for job in running[:2]) + (
        f" and {len(running) - 2} more" if len(running) > 2 else ""
    )
    known = [job.expected_s for job in work.jobs if job.expected_s]
    usual = sum(known) / len(known) if known else 0.0
    words = f"{len(work.taken)} of {len(work.jobs)} done"
    if running:
        words += f", {names}"
    if usual and left:
        seconds = (
            sum((job.expected_s or usual) * min(job.cores, machine.cores) for job in left)
            / machine.cores
        )
        words += (
            ", about"
            f" {duration_in_words(max(seconds, max(job.expected_s or usual for job in left)))} left"
        )
    return words


def duration_in_words(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, for people."""
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _room(
    job: NightJob, running: list[_Running], machine: MachineResources
) -> list[tuple[str, IO[bytes]]] | None:
    """Return the locked GPUs for a job, which are none for most; None where it must wait.

    A job that is larger than the machine runs alone.
    """
    if not running and not job.gpus:
        return []
    cores = machine.cores - sum(r.job.cores for r in running)
    memory = machine.memory_bytes - sum(r.job.memory_bytes for r in running)
    if running and (job.cores > cores or job.memory_bytes > memory):
        return None
    busy = {name for r in running for name, _ in r.gpus}
    gpus: list[tuple[str, IO[bytes]]] = []
    for name in machine.gpus:
        if len(gpus) < job.gpus and name not in busy and (lock := _hold_gpu(name)) is not None:
            gpus.append((name, lock))
    if len(gpus) < job.gpus:
        for _, lock in gpus:
            lock.close()
        return None
    return gpus


def _hold_gpu(name: str) -> IO[bytes] | None:
    """Lock a GPU against other nightly runs on this machine, also those of other users."""
    path = Path(tempfile.gettempdir()) / f"reprokit-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)}.lock"
    # in a sticky folder, O_CREAT fails for an existing file of another user
    for flags in (
        os.O_RDONLY,
        os.O_RDONLY | os.O_CREAT,
    ):
        with host_log.suppress(FileNotFoundError):
            file = os.fdopen(os.open(path, flags, 0o644), "rb")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except OSError as problem:
                host_log.log_ignored(problem)
                file.close()
                return None
    return None


def _start(job: NightJob, gpus: list[tuple[str, IO[bytes]]], work: Night) -> list[_Running]:
    """Start a job; empty if an earlier target has left its folder unusable."""
    try:
        night.refresh_job_spec(
            work,
            job,
            REPROKIT_CORES=str(job.cores),
            **({"CUDA_VISIBLE_DEVICES": ",".join(name for name, _ in gpus)} if gpus else {}),
        )
        log = _log(job)
    except OSError as problem:
        if problem.errno in FULL:
            raise
        for _, lock in gpus:
            lock.close()
        why = f"its folder cannot be used: {problem.strerror}"
        work.say(f"{job.label}: {why}")
        night.record_lost_job(work, job, why)
        return []
    with log:
        child = subprocess.Popen(
            own_command("reprokit.host.nightly.jobs.job", str(job.folder), str(os.getpid())),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return [_Running(job, child, gpus, time.monotonic())]


def _log(job: NightJob) -> IO[bytes]:
    """Open the log of a job; if a target has put a pipe or a link there, delete it first."""
    path = job.folder / "job.log"
    if path.exists() and (path.is_symlink() or not path.is_file()):
        deletion.delete_path(path, inside=job.folder)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o644), "ab")


def _is_over(running: _Running) -> bool:
    return time.monotonic() - running.began > running.job.limit_s


def _end(ended: _Running, work: Night) -> None:
    """End a job, and record why it is lost if it left no result."""
    if ended.child.poll() is None:
        kill_child(ended.child)
    _free(ended)
    result = night.read_job_result(work, ended.job)
    if result is not None:
        problem = result.problem
    else:
        lines = files.read_tail(ended.job.folder / "job.log", 2_000).strip().splitlines()
        status = ended.child.returncode
        problem = (
            f"its process ended with status {status} and left no"
            f" result{': ' + lines[-1] if lines else ''}"
        )
        night.record_lost_job(work, ended.job, problem)
    if problem:
        work.say(f"{ended.job.label}: {problem}")


def _free(ended: _Running) -> None:
    for _, lock in ended.gpus:
        lock.close()


def _gpus() -> list[str]:
    """Return the GPUs of this machine; those that the environment hides stay hidden."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with host_log.suppress(ValueError, CommandFailed, AttributeError):
        numbers = [str(number) for number, _ in enumerate(gpu_vendors.query_gpus(20.0)["gpus"])]
        return numbers if visible is None else [n for n in visible.split(",") if n and numbers]
    return []
