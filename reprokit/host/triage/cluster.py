"""Run the jobs of a night on a Slurm cluster: submitit submits arrays, the shared folder brings the results back.

Key insight: Slurm says only whether a job may still come to an end; what it came to is its result file and nothing
else, so no pickle of a job is ever read, and accounting (sacct) is not needed. What was submitted is written down
before and after each submission, so that a night that is started again finds its jobs and submits none twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.records import BadInput
from .. import files, interrupts
from . import job, night
from .local import duration
from .night import Job, Night

POLL_S = 2.0
"""How often results are looked for."""
ASK_S = 10.0
"""How often the controller is asked, which is shared by many."""
GRACE_S = 60.0
"""A job that has ended may leave its result so much later: shared file systems are not seen at once."""
PATIENCE_S = 900.0
"""A controller that does not answer for so long is gone; the night can be gone on with later."""
SUBMISSIONS = 2
"""So often a job is submitted that the cluster loses; one that met its time limit or was cancelled is not again."""
ALIVE = frozenset(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING SIGNALING STAGE_OUT STOPPED RESV_DEL_HOLD SPECIAL_EXIT".split()
)
FINAL = frozenset({"TIMEOUT", "CANCELLED", "DEADLINE"})
NEVER = frozenset(
    "PartitionConfig PartitionNodeLimit PartitionTimeLimit BadConstraints DependencyNeverSatisfied InvalidAccount InvalidQOS QOSUsageThreshold AssocMaxCpuPerJobLimit".split()
)
"""Reasons why a job that waits would wait for ever."""
HELD = re.compile(r"held|JobHeld|launch failed", re.IGNORECASE)
"""A node could not start it, so Slurm keeps it back until somebody looks: it is taken back and submitted anew."""
JOURNAL = "slurm.jsonl"


class Gone(Exception):
    """The controller did not answer."""


class _Refused(Exception):
    """No node can ever run it."""


@dataclass
class _Tracked:
    """What is known of one job on the cluster."""

    job: Job
    ids: list[str] = field(default_factory=list)
    """One a submission."""
    ended: float | None = None
    """When it was first seen to have ended without a result."""
    state: str = ""


def check() -> None:
    """Raise BadInput where there is no Slurm, or nothing to talk to it with."""
    for program in ("sbatch", "squeue", "srun"):
        if shutil.which(program) is None:
            raise BadInput(
                f"--engine slurm needs {program}, which is not on PATH; run it on a machine that submits jobs"
            )
    if importlib.util.find_spec("submitit") is None:
        raise BadInput("--engine slurm needs submitit: pip install 'reprokit[slurm]'")


def run(
    work: Night, show: Callable[[str], None], say: Callable[[str], None], patience_s: float = PATIENCE_S, ask_s: float = ASK_S,
    grace_s: float = GRACE_S,
) -> None:  # fmt: skip
    """Submit what is left and wait for it; returns early, with something left, where the controller is gone."""
    tracked = {one.folder: _Tracked(one) for one in work.left}
    asked = silent_since = time.monotonic()
    prefix = "reprokit-" + hashlib.sha256(str(work.path).encode()).hexdigest()[:8]
    is_new = True
    with interrupts.heard():
        try:
            while work.left:
                interrupts.check()
                for done in night.collect(work):
                    tracked.pop(done.folder, None)
                if is_new or time.monotonic() - asked > ask_s:
                    asked = time.monotonic()
                    try:
                        _restore(work, tracked, prefix)
                        _submit(work, tracked, prefix, say)
                        _look(work, tracked, prefix, grace_s, say)
                        silent_since, is_new = time.monotonic(), False
                    except Gone as problem:
                        silent = time.monotonic() - silent_since
                        if silent > patience_s:
                            say(
                                f"the cluster has not answered for {duration(silent)} ({problem}); start the night again to go on"
                            )
                            return
                show(_standing(work, tracked))
                time.sleep(min(POLL_S, ask_s))
        except KeyboardInterrupt:
            say(f"the jobs stay on the cluster: start the night again to go on, or scancel --name={prefix}")
            raise


def _standing(work: Night, tracked: dict[Path, _Tracked]) -> str:
    states: dict[str, int] = {}
    for one in tracked.values():
        if one.state:
            states[one.state.lower()] = states.get(one.state.lower(), 0) + 1
    words = f"{len(work.taken)} of {len(work.jobs)} done"
    return ", ".join([words, *(f"{count} {state}" for state, count in sorted(states.items()))])


def _restore(work: Night, tracked: dict[Path, _Tracked], prefix: str) -> None:
    """Find the jobs that an earlier start has submitted; raises Gone."""
    if any(one.ids for one in tracked.values()):
        return
    by_name = {folder.name: one for folder, one in tracked.items()}
    open_arrays: dict[str, list[str]] = {}
    for line in files.read_text(work.path / JOURNAL).splitlines():
        with contextlib.suppress(ValueError, KeyError, AttributeError):
            told = json.loads(line)
            if "ids" not in told:
                open_arrays[told["name"]] = told["folders"]
                continue
            folders = open_arrays.pop(told["name"], [])
            for folder, number in zip(folders, told["ids"], strict=False):
                if folder in by_name:
                    by_name[folder].ids.append(number)
    for name, folders in open_arrays.items():  # killed between the submission and its note
        found = sorted(_ask(f"--name={name}"), key=_index)
        for number in found:
            place = _index(number)
            if place < len(folders) and folders[place] in by_name:
                by_name[folders[place]].ids.append(number)


def _index(number: str) -> int:
    return int(number.partition("_")[2] or 0)


def _submit(work: Night, tracked: dict[Path, _Tracked], prefix: str, say: Callable[[str], None]) -> None:
    """Submit what was never submitted, or was lost; one array for what wants the same of a node."""
    groups: dict[tuple[int, int, int, int], list[_Tracked]] = {}
    for one in tracked.values():
        if not one.ids or (one.state == "LOST" and len(one.ids) < SUBMISSIONS):
            asked = one.job
            wants = (asked.cores, math.ceil(asked.memory_bytes / 1e9), asked.gpus, math.ceil(asked.limit_s / 60))
            groups.setdefault(wants, []).append(one)
    for wants, group in groups.items():
        name = f"{prefix}-{sum(1 for _ in files.read_text(work.path / JOURNAL).splitlines())}"
        for one in group:
            night.refresh(work, one.job)
        _note(work, {"name": name, "folders": [one.job.folder.name for one in group]})
        try:
            ids = _sbatch(work, name, wants, [str(one.job.folder) for one in group])
        except _Refused as problem:
            say(f"Slurm refuses {len(group)} job{'s' if len(group) > 1 else ''}: {problem}")
            for one in group:
                job.give_up(one.job.folder, f"Slurm refuses it: {problem}; mend [slurm] or what the target needs")
            continue
        _note(work, {"name": name, "ids": ids})
        for one, number in zip(group, ids, strict=True):
            one.ids.append(number)
            one.state, one.ended = "PENDING", None
        say(f"submitted {len(group)} job{'s' if len(group) > 1 else ''} as {ids[0].partition('_')[0]} ({name})")


def _note(work: Night, told: dict[str, Any]) -> None:
    with open(work.path / JOURNAL, "a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
        file.flush()


def _sbatch(work: Night, name: str, wants: tuple[int, int, int, int], folders: list[str]) -> list[str]:
    """Submit through submitit; raises Gone where the controller is not there, BadInput for bad parameters."""
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
            job_name=name, time=minutes, cpus_per_task=cores, mem=f"{memory_gb}GB", array_parallelism=slurm.most_at_once, **more
        )  # fmt: skip
        jobs = executor.map_array(job.run_job, folders)
    except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as problem:
        said = " ".join(str(problem).split())
        if re.search(r"Unable to contact|Connection refused|timed out|Socket", said):
            raise Gone(said[-200:]) from problem
        raise _Refused(said[-300:]) from problem
    except (ValueError, TypeError) as problem:
        raise BadInput(f"[slurm] of {work.suite.path}: {' '.join(str(problem).split())[:300]}") from problem
    return [str(one.job_id) for one in jobs]


def _look(work: Night, tracked: dict[Path, _Tracked], prefix: str, grace_s: float, say: Callable[[str], None]) -> None:
    """Ask what became of the jobs; one that has ended without a result is lost."""
    names = {json.loads(line)["name"] for line in files.read_text(work.path / JOURNAL).splitlines()}
    states = _ask(f"--name={','.join(sorted(names))}") if names else {}
    for folder, one in list(tracked.items()):
        if not one.ids:
            continue
        state, reason = states.get(one.ids[-1], ("", ""))
        is_stuck = state == "PENDING" and (reason in NEVER or HELD.search(reason) is not None)
        if state in ALIVE and not is_stuck:
            one.state, one.ended = state, None
            continue
        one.ended = one.ended or time.monotonic()
        if time.monotonic() - one.ended < grace_s or (folder / job.RESULT).exists():
            continue
        lost = state if state not in ("", "COMPLETED") else "it left no result"
        if is_stuck:
            lost = reason
            subprocess.run(["scancel", one.ids[-1]], capture_output=True, timeout=60, check=False)
        if state not in FINAL and reason not in NEVER and len(one.ids) < SUBMISSIONS:
            say(f"{one.job.label}: the cluster lost job {one.ids[-1]} ({lost}); submitting it again")
            one.state = "LOST"
        else:
            logs = work.path / "slurm" / f"{one.ids[-1]}_0_log.err"
            job.give_up(one.job.folder, f"Slurm ended job {one.ids[-1]}: {lost} (see {logs})")


def _ask(which: str) -> dict[str, tuple[str, str]]:
    """State and reason by job id, for as long as the controller remembers; raises Gone."""
    words = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r", which]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired as problem:
        raise Gone("squeue gave no answer in 60 s") from problem
    if done.returncode:
        raise Gone(" ".join(done.stderr.split())[-200:])
    rows = (line.strip().split("|", 2) for line in done.stdout.splitlines())
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
