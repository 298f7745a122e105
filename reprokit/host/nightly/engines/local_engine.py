"""Run the jobs of a night on this machine: as many at once as its cores, memory and GPUs allow."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from reprokit.host.nightly.jobs import job
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.schedule.night import Night, NightJob
from reprokit.host.system import compiler_cache, deletion, files, interrupts
from reprokit.host.system.child_question import NoAnswer, ask_child

POLL_S, SHOW_S = 0.1, 1.0
OVERTAKEN = 8
"""A large job that waits for room is overtaken by so many smaller ones, and then the machine is
kept free for it.
"""
UNKNOWN_S = 60.0
"""What a job is expected to take that was never run."""

FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Problems of the machine, not of one job: the night stops and can continue later."""

Show = Callable[[str], None]


@dataclass
class MachineResources:
    """What this machine has to give."""

    cores: int
    memory_bytes: float
    gpus: list[str] = field(default_factory=list)
    """As ``CUDA_VISIBLE_DEVICES`` names them."""


@dataclass
class _Running:
    job: NightJob
    child: subprocess.Popen[bytes]
    gpus: list[tuple[str, IO[bytes]]]
    began: float


def this_machine(cores: int | None = None) -> MachineResources:
    """Count what is here; ``cores`` is the user's own limit."""
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return MachineResources(
        min(cores or usable, 10_000), psutil.virtual_memory().available * 0.9, _gpus()
    )


def run_on_machine(
    work: Night, machine: MachineResources, show: Show, say: Callable[[str], None]
) -> None:
    """Run what is left; raises KeyboardInterrupt after everything that runs was ended."""
    waiting = sorted(work.left, key=lambda one: -(one.expected_s or UNKNOWN_S))
    running: list[_Running] = []
    overtaken, next_show = 0, 0.0
    if compiler_cache.fix_headers():
        say(
            "removed half a precompiled header of a killed g++: C++ builds took several times as"
            " long"
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
                    night.collect_results(
                        work, [r.job for r in running]
                    )  # what starts next knows of it
                for one in list(waiting):
                    if one.gpus > len(machine.gpus):
                        wanted = f"{one.gpus} GPU{'s' if one.gpus > 1 else ''}"
                        night.give_up(
                            work,
                            one,
                            f"it needs {wanted}, and this machine has {len(machine.gpus)}",
                        )
                        waiting.remove(one)
                    elif (held := _room(one, running, machine)) is not None:
                        overtaken = overtaken + 1 if one is not waiting[0] else 0
                        waiting.remove(one)
                        running += _start(one, held, work)
                    elif (
                        overtaken >= OVERTAKEN and not one.gpus
                    ):  # a GPU may be held by others for long
                        break
                if time.monotonic() >= next_show:
                    show(night_status(work, [r.job for r in running], machine))
                    next_show = time.monotonic() + SHOW_S
                time.sleep(POLL_S)
    finally:
        for left in running:
            job.end(left.child)
            _free(left)
    night.collect_results(work)


def night_status(work: Night, running: list[NightJob], machine: MachineResources) -> str:
    """How the night stands, in one line, with an estimate."""
    left = work.left
    names = ", ".join(one.label for one in running[:2]) + (
        f" and {len(running) - 2} more" if len(running) > 2 else ""
    )
    known = [one.expected_s for one in work.jobs if one.expected_s]
    usual = sum(known) / len(known) if known else 0.0
    words = f"{len(work.taken)} of {len(work.jobs)} done"
    if running:
        words += f", {names}"
    if usual and left:
        seconds = (
            sum((one.expected_s or usual) * min(one.cores, machine.cores) for one in left)
            / machine.cores
        )
        words += (
            ", about"
            f" {duration_in_words(max(seconds, max(one.expected_s or usual for one in left)))} left"
        )
    return words


def duration_in_words(seconds: float) -> str:
    """Seconds for people."""
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _room(
    one: NightJob, running: list[_Running], machine: MachineResources
) -> list[tuple[str, IO[bytes]]] | None:
    """The GPUs that it may hold, none for most; None where there is no room. What is larger than
    the machine runs alone.
    """
    if not running and not one.gpus:
        return []
    cores = machine.cores - sum(r.job.cores for r in running)
    memory = machine.memory_bytes - sum(r.job.memory_bytes for r in running)
    if running and (one.cores > cores or one.memory_bytes > memory):
        return None
    busy = {name for r in running for name, _ in r.gpus}
    held: list[tuple[str, IO[bytes]]] = []
    for name in machine.gpus:
        if len(held) < one.gpus and name not in busy and (lock := _hold_gpu(name)) is not None:
            held.append((name, lock))
    if len(held) < one.gpus:
        for _, lock in held:
            lock.close()
        return None
    return held


def _hold_gpu(name: str) -> IO[bytes] | None:
    """Hold a GPU against other nights on this machine, also those of other users."""
    place = Path(tempfile.gettempdir()) / f"reprokit-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)}.lock"
    for flags in (
        os.O_RDONLY,
        os.O_RDONLY | os.O_CREAT,
    ):  # nobody may create what lies there already in such a folder
        with contextlib.suppress(FileNotFoundError):
            file = os.fdopen(os.open(place, flags, 0o644), "rb")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except OSError:
                file.close()
                return None
    return None


def _start(one: NightJob, held: list[tuple[str, IO[bytes]]], work: Night) -> list[_Running]:
    """Start a job; empty if an earlier target has left its folder unusable."""
    try:
        night.refresh_plan(
            work,
            one,
            **({"CUDA_VISIBLE_DEVICES": ",".join(name for name, _ in held)} if held else {}),
        )
        log = _log(one)
    except OSError as problem:
        if problem.errno in FULL:
            raise
        for _, lock in held:
            lock.close()
        why = f"its folder cannot be used: {problem.strerror}"
        work.say(f"{one.label}: {why}")
        night.give_up(work, one, why)
        return []
    with log:
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "reprokit.host.nightly.jobs.job",
                str(one.folder),
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return [_Running(one, child, held, time.monotonic())]


def _log(one: NightJob) -> IO[bytes]:
    """The log of a job: a plain file, also if a target has put a pipe or a link in its place."""
    place = one.folder / "job.log"
    if place.exists() and (place.is_symlink() or not place.is_file()):
        deletion.delete(place, inside=one.folder)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(place, flags, 0o644), "ab")


def _is_over(one: _Running) -> bool:
    return time.monotonic() - one.began > one.job.limit_s


def _end(one: _Running, work: Night) -> None:
    """A job has ended, or has to: a result is there in any case."""
    if one.child.poll() is None:
        job.end(one.child)
    _free(one)
    told = night.read_night(work, one.job)
    problem = told.get("problem")
    if not told:
        said = files.read_tail(one.job.folder / "job.log", 2_000).strip().splitlines()
        status = one.child.returncode
        problem = (
            f"its process ended with status {status} and left no"
            f" result{': ' + said[-1] if said else ''}"
        )
        night.give_up(work, one.job, problem)
    if problem:
        work.say(f"{one.job.label}: {problem}")


def _free(one: _Running) -> None:
    for _, lock in one.gpus:
        lock.close()


def _gpus() -> list[str]:
    """The GPUs of this machine; those that the environment hides stay hidden."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with contextlib.suppress(ValueError, NoAnswer, AttributeError):
        told = json.loads(
            ask_child([sys.executable, "-m", "reprokit.host.watch.nvml"], 20.0) or "{}"
        )
        here = [str(number) for number in range(len(told.get("gpus") or ()))]
        return here if visible is None else [n for n in visible.split(",") if n and here]
    return []
