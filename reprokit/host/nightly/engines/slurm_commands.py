"""Slurm's commands as a night uses them: submit an array, ask for jobs by their names, cancel.

Key insight: of what sbatch refuses, some can never run, some is too much only now, and of some
nobody knows whether it was taken. Only the first is lost.
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

GONE = re.compile(
    r"Unable to contact|Connection|timed out|Socket|Zero Bytes|standby|munge|authentication",
    re.IGNORECASE,
)
"""What sbatch says where the controller did not answer: the job may be there all the same."""
ALONE = re.compile(r"PerJob|PerNode|QOSMin")
"""Limits that one job breaks by itself, so that it would for ever."""
LATER = re.compile(r"SubmitJob|accounting/QOS policy|temporarily|Invalid job array specification")
"""What sbatch says where there are too many jobs now, or too many at once."""
ARRAY = 1_000
"""So many jobs one array has as Slurm comes; more are submitted in pieces."""


class SlurmGone(Exception):
    """The controller did not answer."""


class SlurmRefused(Exception):
    """No node can ever run it."""


class SlurmBusy(Exception):
    """It is too much now."""


def largest_array() -> int:
    """How many jobs one array may have; Slurm's own number where nobody tells."""
    with contextlib.suppress(SlurmGone):
        found = re.search(
            r"^MaxArraySize\s*=\s*(\d+)",
            call_slurm("scontrol", "show", "config").stdout,
            re.MULTILINE,
        )
        return max(1, int(found[1]) - 1) if found else ARRAY
    return ARRAY


def submit_array(
    work: Night, name: str, wants: tuple[int, int, int, int], folders: list[str]
) -> list[str]:
    """Submit through submitit; raises Gone where the controller is not there, BadInput for bad
    parameters.
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
        said = " ".join(str(problem).split())
        if GONE.search(said) or "sbatch: " not in said:  # killed, or words that nobody understands
            raise SlurmGone(said[-200:] or "sbatch was killed") from problem
        is_later = LATER.search(said) and not ALONE.search(said)
        raise (SlurmBusy if is_later else SlurmRefused)(said[-300:]) from problem
    except (ValueError, TypeError) as problem:
        raise BadInput(
            f"[slurm] of {work.suite.path}: {' '.join(str(problem).split())[:300]}"
        ) from problem
    return [str(one.job_id) for one in jobs]


def ask_jobs(names: list[str]) -> dict[str, tuple[str, str, str]]:
    """Name, state and reason by job id, for as long as the controller remembers; raises Gone."""
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
    """Cancel what an id or ``--name=`` tells; False where nobody took the order."""
    with contextlib.suppress(SlurmGone):
        return not call_slurm("scancel", which).returncode
    return False


def call_slurm(*words: str) -> subprocess.CompletedProcess[str]:
    """Call one of Slurm's commands; raises Gone where it gives no answer."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (subprocess.TimeoutExpired, OSError) as problem:
        raise SlurmGone(f"{words[0]} gave no answer ({type(problem).__name__})") from problem
