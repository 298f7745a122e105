"""Questions about the machine and its GPU driver: are they responsible for a failure?"""

from __future__ import annotations

import re

from reprokit.core.judge.responsible.parties import Responsible
from reprokit.core.judge.stacks.evidence import blamed_exception
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation

_DRIVER = re.compile(
    r"CUDA driver version is insufficient|CUDA driver initialization failed|CUDA error: (?:unknown"
    r" error|system not yet"
    r" initialized|initialization error|no CUDA-capable device is detected|the provided PTX was"
    r" compiled with an unsupported"
    r" toolchain)|Found no NVIDIA driver|NVML (?:error|_ERROR)\w*|NVML_ERROR_\w+|Driver/library"
    r" version mismatch"
)
"""Error messages of a GPU driver."""


def machine(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a full disk, a stopped process, a device that does not respond, a lock of a
    different program, and a SIGKILL from outside.
    """
    cause = verdict.cause or ""
    if cause == "disk-full":
        return Responsible("machine", ("The disk is full, or a file reached its size limit.",))
    if verdict.kind == "crash" and cause == "SIGKILL" and not seen.oom_evidence:
        return Responsible(
            "machine", ("The target was killed by SIGKILL, which the compiler does not send.",)
        )
    if verdict.kind != "hang":
        return None
    if cause == "stopped" or cause.endswith("-stopped"):
        return Responsible("machine", ("A process is stopped by a signal (state T).",))
    if cause == "uninterruptible":
        return Responsible("machine", ("A thread waits in the kernel for a device (state D).",))
    own = {process.pid for process in seen.evidence.processes}
    holder = next(
        (lock.pid for lock in seen.evidence.locks if lock.is_holder and lock.pid not in own), None
    )
    if cause == "file-lock" and holder is not None:
        why = f"Process {holder}, which is not part of the target, holds the lock."
        return Responsible("machine", (why,))
    return None


def driver(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for an error that the GPU driver reported."""
    raised = blamed_exception(seen)
    if seen.simulated or raised is None:
        return None
    matches = (_DRIVER.search(link.message) for link in raised.chain)
    error = next((match.group() for match in matches if match), "")
    return Responsible("driver", (f"The GPU driver reported: {error}.",)) if error else None
