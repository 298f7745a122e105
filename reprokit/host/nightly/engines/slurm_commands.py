"""Slurm's commands: submit an array, query jobs by their names, and cancel jobs.

Key insight: sbatch can fail in three ways. A job can never run, or there are too many jobs at the
moment, or it is unknown whether the job was submitted. Only the first job is lost.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import job
from reprokit.host.nightly.schedule.night import Night
from reprokit.host.system import host_log

NO_CONTROLLER = re.compile(
    r"Unable to contact|Connection|timed out|Socket|Zero Bytes|standby|munge|authentication",
    re.IGNORECASE,
)
"""Errors of sbatch without an answer of the controller: the job may have been submitted."""
PERMANENT_LIMIT = re.compile(r"PerJob|PerNode|QOSMin")
"""Limits that one job exceeds by itself, so that it can never run."""
TEMPORARY_LIMIT = re.compile(
    r"SubmitJob|accounting/QOS policy|temporarily|Invalid job array specification"
)
"""Errors of sbatch for too many jobs at the moment, or in one array."""
DEFAULT_ARRAY_SIZE = 1_000
"""Slurm's default limit of the jobs of one array; more jobs are submitted in several arrays."""


class SlurmGone(Exception):
    """The controller did not answer."""


class SlurmRefused(Exception):
    """No node can ever run the job."""


class SlurmBusy(Exception):
    """There are too many jobs at the moment."""


def largest_array() -> int:
    """Return how many jobs one array may have; Slurm's default where the controller is silent."""
    with host_log.suppress(SlurmGone):
        match = re.search(
            r"^MaxArraySize\s*=\s*(\d+)",
            call_slurm("scontrol", "show", "config").stdout,
            re.MULTILINE,
        )
        return max(1, int(match[1]) - 1) if match else DEFAULT_ARRAY_SIZE
    return DEFAULT_ARRAY_SIZE


def submit_array(
    work: Night, name: str, wants: tuple[int, int, int, int], folders: list[str]
) -> list[str]:
    """Submit an array of jobs with submitit, and return their ids.

    ``wants`` are the cores, the memory in GB, the GPUs and the minutes of each job.

    Raises:
        SlurmGone: the controller did not answer.
        SlurmBusy: there are too many jobs at the moment.
        SlurmRefused: the jobs can never run.
        BadInput: a parameter in ``[slurm]`` is not valid.
    """
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    cores, memory_gb, gpus, minutes = wants
    slurm = work.suite.slurm
    more: dict[str, Any] = {"partition": slurm.partition} if slurm.partition else {}
    if gpus:
        more["gpus_per_node"] = gpus
    if slurm.parameters:
        more["additional_parameters"] = dict(slurm.parameters)
    executor = submitit.SlurmExecutor(work.path / "slurm", max_num_timeout=0)
    try:
        executor.update_parameters(
            job_name=name,
            time=minutes,
            cpus_per_task=cores,
            mem=f"{memory_gb}GB",
            array_parallelism=slurm.most_at_once,
            **more,
        )
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it raises, too
            jobs = executor.map_array(job.run_job, folders)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as problem:
        error = " ".join(str(problem).split())
        # sbatch was killed, or its error is not known
        if NO_CONTROLLER.search(error) or "sbatch: " not in error:
            raise SlurmGone(error[-200:] or "sbatch was killed") from problem
        is_later = TEMPORARY_LIMIT.search(error) and not PERMANENT_LIMIT.search(error)
        raise (SlurmBusy if is_later else SlurmRefused)(error[-300:]) from problem
    except (ValueError, TypeError) as problem:
        raise BadInput(
            f"[slurm] of {work.suite.path}: {' '.join(str(problem).split())[:300]}"
        ) from problem
    return [str(submitted.job_id) for submitted in jobs]


def query_jobs(names: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return name, state and reason by job id, for jobs that the controller remembers.

    Raises:
        SlurmGone: the controller did not answer.
    """
    if not names:
        return {}
    done = call_slurm(
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        "--format=%i|%j|%T|%r",
        f"--name={','.join(names)}",
    )
    if done.returncode:
        raise SlurmGone(" ".join(done.stderr.split())[-200:])
    rows = (line.strip().split("|", 3) for line in done.stdout.splitlines())
    return {row[0]: (row[1], row[2], row[3]) for row in rows if len(row) == 4}


def cancel_jobs(which: str) -> bool:
    """Cancel the jobs of an id or of ``--name=``; return False where that failed."""
    with host_log.suppress(SlurmGone):
        return not call_slurm("scancel", which).returncode
    return False


def call_slurm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; raises SlurmGone where it gives no answer."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (subprocess.TimeoutExpired, OSError) as problem:
        raise SlurmGone(f"{words[0]} gave no answer ({type(problem).__name__})") from problem
