"""Run the jobs of a nightly run on a Slurm cluster.

submitit submits arrays of jobs, and the results come back in the shared folder.

Key insight: Slurm reports only whether a job may still end. Its result is its result file and
nothing else, so no pickle of a job is read, and accounting (sacct) is not needed. Each submission
is recorded in a journal before and after it, so that a resumed nightly run finds its jobs and
submits none twice.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.engines import slurm_commands
from reprokit.host.nightly.engines.local_engine import duration_in_words
from reprokit.host.nightly.jobs import job_result, job_schema
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.schedule.night import Night, NightJob
from reprokit.host.system import files, host_log, interrupts

POLL_S = 2.0
"""Interval between two searches for results."""
QUERY_INTERVAL_S = 10.0
"""Interval between two queries of the controller, which many users share."""
RESULT_GRACE_S = 60.0
"""How long after the end of a job its result may appear, because of the shared file system."""
CONTROLLER_TIMEOUT_S = 900.0
"""If the controller does not answer for this long, the nightly run stops; it can be resumed."""
MAX_SUBMISSIONS = 2
"""How many times a job is submitted if the cluster loses it; a job that reached its time limit or
was cancelled is not submitted again.
"""
ALIVE = frozenset(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING"
    " SIGNALING STAGE_OUT STOPPED RESV_DEL_HOLD SPECIAL_EXIT".split()
)
FINAL = frozenset({"TIMEOUT", "CANCELLED", "DEADLINE"})
NEVER = frozenset(
    "PartitionConfig PartitionNodeLimit PartitionTimeLimit BadConstraints DependencyNeverSatisfied"
    " InvalidAccount InvalidQOS QOSUsageThreshold AssocMaxCpuPerJobLimit".split()
)
"""Reasons for which a pending job would wait forever."""
HELD = re.compile(r"held|JobHeld|launch failed", re.IGNORECASE)
"""Reasons of a job that Slurm holds, because a node could not start it: it is submitted again."""
RESUBMIT_DELAY_S = 60.0
"""The delay after the cluster refused a single further job."""
JOURNAL_FILE = "slurm.jsonl"


@dataclass
class _Tracked:
    """The state of one job on the cluster."""

    job: NightJob
    ids: list[str] = field(default_factory=list)
    """One for each submission."""
    ended: float | None = None
    """When it was first found to have ended without a result."""
    state: str = ""


@dataclass
class _Array:
    """One submission in the journal."""

    folders: list[str]
    ids: list[str] | None = None
    """None where it is not known whether it was submitted; empty where it was not submitted, or
    was cancelled.
    """


@dataclass
class _Queue:
    """The jobs of a nightly run and the state of their submission."""

    work: Night
    say: Callable[[str], None]
    tracked: dict[Path, _Tracked]
    prefix: str
    is_restored: bool = False
    """Whether ``tracked`` agrees with the journal."""
    largest: int = 0
    """The limit of the jobs of one array; 0 before the first query."""
    piece: int = 0
    """The limit of the jobs of the next array, which is lower after a refusal."""
    not_before: float = 0.0
    last_problem: str = ""


def check_slurm() -> None:
    """Raise BadInput where Slurm's programs or submitit are not installed."""
    for program in ("sbatch", "squeue", "srun"):
        if shutil.which(program) is None:
            raise BadInput(
                f"--engine slurm needs {program}, which is not on PATH; run it on a machine that"
                " submits jobs"
            )
    if importlib.util.find_spec("submitit") is None:
        raise BadInput("--engine slurm needs submitit: pip install 'reprokit[slurm]'")


def run_on_slurm(
    work: Night,
    show: Callable[[str], None],
    say: Callable[[str], None],
    patience_s: float = CONTROLLER_TIMEOUT_S,
    ask_s: float = QUERY_INTERVAL_S,
    grace_s: float = RESULT_GRACE_S,
) -> None:
    """Submit the remaining jobs, and wait for them.

    If the controller does not answer for ``patience_s``, return with jobs left.

    Raises:
        KeyboardInterrupt: the user interrupted; the jobs stay on the cluster.
    """
    prefix = "reprokit-" + hashlib.sha256(str(work.path).encode()).hexdigest()[:8]
    queue = _Queue(work, say, {tracked.folder: _Tracked(tracked) for tracked in work.left}, prefix)
    last_query = silent_since = time.monotonic()
    is_new = True
    with interrupts.allowed():
        try:
            while work.left:
                interrupts.raise_if_interrupted()
                for done in night.collect_results(work):
                    queue.tracked.pop(done.folder, None)
                if is_new or time.monotonic() - last_query > ask_s:
                    last_query, is_new = time.monotonic(), False
                    try:
                        _restore(queue)
                        _submit(queue)
                        _look(queue, grace_s)
                        silent_since = time.monotonic()
                    except slurm_commands.SlurmGone as problem:
                        # the last submission may have succeeded: search for it by its name
                        queue.is_restored = False
                        silent = time.monotonic() - silent_since
                        if silent > patience_s:
                            say(
                                f"the cluster has not answered for {duration_in_words(silent)}"
                                f" ({problem}); start the nightly run again to resume it"
                            )
                            return
                show(_standing(queue))
                time.sleep(min(POLL_S, ask_s))
        except KeyboardInterrupt:
            job_ids = dict.fromkeys(
                tracked.ids[-1].partition("_")[0]
                for tracked in queue.tracked.values()
                if tracked.ids
            )
            words = (
                "the jobs stay on the cluster: start the nightly run again to resume it, or scancel"
                f" {' '.join(job_ids)}"
            )
            say(words if job_ids else "start the nightly run again to resume it")
            raise


def holds_jobs(path: Path) -> bool:
    """Return whether a nightly run has jobs on a cluster, according to its journal."""
    return any(array.ids != [] for array in _noted(path).values())


def forget_jobs(path: Path) -> None:
    """Cancel the jobs of a nightly run; jobs that could not be cancelled stay in the journal."""
    for name, array in _noted(path).items():
        if array.ids != []:
            if not slurm_commands.cancel_jobs(f"--name={name}"):
                return
            _note(path, {"name": name, "ids": []})


def _standing(queue: _Queue) -> str:
    states: dict[str, int] = {}
    for tracked in queue.tracked.values():
        if tracked.state:
            states[tracked.state.lower()] = states.get(tracked.state.lower(), 0) + 1
    words = f"{len(queue.work.taken)} of {len(queue.work.jobs)} done"
    return ", ".join([words, *(f"{count} {state}" for state, count in sorted(states.items()))])


def _noted(path: Path) -> dict[str, _Array]:
    """Return the submissions in the journal, by name; an incomplete line is skipped."""
    arrays: dict[str, _Array] = {}
    for line in files.read_text(path / JOURNAL_FILE).splitlines():
        with host_log.suppress(job_schema.FailsSchema, KeyError):
            row = job_schema.convert_to_struct(
                job_schema.parse_strict_json(line), job_schema.Submission
            )
            if row.ids is not None:
                arrays[row.name].ids = row.ids
            elif row.folders is not None:
                arrays[row.name] = _Array(row.folders)
    return arrays


def _note(path: Path, row: Mapping[str, str | list[str]]) -> None:
    files.append_json(path / JOURNAL_FILE, row)


def _restore(queue: _Queue) -> None:
    """Find the jobs that were submitted before; raises SlurmGone."""
    if queue.is_restored:
        return
    noted = _noted(queue.work.path)
    # reprokit was killed, or there was no answer, before the journal had their ids
    unsure = [name for name, array in noted.items() if array.ids is None]
    # query first, because this may raise SlurmGone
    seen = {
        row[0]: number.partition("_")[0]
        for number, row in slurm_commands.query_jobs(unsure).items()
    }
    known: dict[str, list[str]] = {}
    for name, array in noted.items():
        if name in seen:
            is_array = len(array.folders) > 1
            array.ids = [
                f"{seen[name]}_{index}" if is_array else seen[name]
                for index in range(len(array.folders))
            ]
            _note(queue.work.path, {"name": name, "ids": array.ids})
        for folder, number in zip(array.folders, array.ids or (), strict=False):
            known.setdefault(folder, []).append(number)
    for path, tracked in queue.tracked.items():
        ids = known.get(path.name, [])
        if ids != tracked.ids:
            tracked.ids, tracked.state, tracked.ended = ids, "", None
    queue.is_restored = True


def _submit(queue: _Queue) -> None:
    """Submit new and lost jobs, in arrays of jobs that need the same resources."""
    groups: dict[tuple[int, int, int, int], list[_Tracked]] = {}
    for tracked in queue.tracked.values():
        if not tracked.ids or (tracked.state == "LOST" and len(tracked.ids) < MAX_SUBMISSIONS):
            job = tracked.job
            wants = (
                job.cores,
                math.ceil(job.memory_bytes / 1e9),
                job.gpus,
                math.ceil(job.limit_s / 60),
            )
            groups.setdefault(wants, []).append(tracked)
            tracked.state = tracked.state or "UNSUBMITTED"
    if not groups or time.monotonic() < queue.not_before:
        return
    if not queue.largest:
        queue.largest = queue.piece = slurm_commands.largest_array()
    for wants, group in groups.items():
        while group:
            count = queue.piece
            if not _submit_array(queue, wants, group[:count]):
                break
            group = group[count:]


def _submit_array(queue: _Queue, wants: tuple[int, int, int, int], group: list[_Tracked]) -> bool:
    """Submit one array; return False where there are too many jobs at the moment."""
    path = queue.work.path
    name = f"{queue.prefix}-{len(files.read_text(path / JOURNAL_FILE).splitlines())}"
    jobs = f"{len(group)} job{'s' if len(group) > 1 else ''}"
    for tracked in [*group]:
        try:
            night.refresh_job_spec(queue.work, tracked.job)
        except OSError as problem:
            group.remove(tracked)
            night.record_lost_job(
                queue.work, tracked.job, f"its folder cannot be used: {problem.strerror}"
            )
    if not group:
        return True
    _note(path, {"name": name, "folders": [tracked.job.folder.name for tracked in group]})
    try:
        ids = slurm_commands.submit_array(
            queue.work, name, wants, [str(tracked.job.folder) for tracked in group]
        )
    except slurm_commands.SlurmRefused as problem:
        _note(path, {"name": name, "ids": []})
        queue.say(f"Slurm refuses {jobs}: {problem}")
        for tracked in group:
            night.record_lost_job(
                queue.work,
                tracked.job,
                f"Slurm refuses it: {problem}; change [slurm] or the resources of the target",
            )
        return True
    except slurm_commands.SlurmBusy as problem:
        _note(path, {"name": name, "ids": []})
        queue.piece = max(1, len(group) // 2)
        if len(group) == 1:
            queue.not_before = time.monotonic() + RESUBMIT_DELAY_S
            if queue.last_problem != str(problem):
                queue.last_problem = str(problem)
                queue.say(
                    f"Slurm accepts no more jobs now; the others are submitted later: {problem}"
                )
        return False
    _note(path, {"name": name, "ids": ids})
    for tracked, number in zip(group, ids, strict=True):
        tracked.ids.append(number)
        tracked.state, tracked.ended = "PENDING", None
    queue.piece = min(queue.largest, 2 * queue.piece)
    queue.say(f"submitted {jobs} as {ids[0].partition('_')[0]} ({name})")
    return True


def _look(queue: _Queue, grace_s: float) -> None:
    """Update the states of the jobs; a job that ended without a result is lost."""
    last = {tracked.ids[-1] for tracked in queue.tracked.values() if tracked.ids}
    states = slurm_commands.query_jobs(
        [
            name
            for name, array in _noted(queue.work.path).items()
            if not last.isdisjoint(array.ids or ())
        ]
    )
    for folder, tracked in list(queue.tracked.items()):
        if not tracked.ids:
            continue
        _, state, reason = states.get(tracked.ids[-1], ("", "", ""))
        is_stuck = state == "PENDING" and (reason in NEVER or HELD.search(reason) is not None)
        if state in ALIVE and not is_stuck:
            tracked.state, tracked.ended = state, None
            continue
        tracked.ended = tracked.ended or time.monotonic()
        if time.monotonic() - tracked.ended < grace_s or (folder / job_result.RESULT_FILE).exists():
            continue
        lost = state if state not in ("", "COMPLETED") else "it left no result"
        if is_stuck:
            lost = reason
            slurm_commands.cancel_jobs(tracked.ids[-1])
        if state not in FINAL and reason not in NEVER and len(tracked.ids) < MAX_SUBMISSIONS:
            queue.say(
                f"{tracked.job.label}: the cluster lost job {tracked.ids[-1]} ({lost}); submitting"
                " it again"
            )
            tracked.state = "LOST"
        else:
            logs = queue.work.path / "slurm" / f"{tracked.ids[-1]}_0_log.err"
            night.record_lost_job(
                queue.work, tracked.job, f"Slurm ended job {tracked.ids[-1]}: {lost} (see {logs})"
            )
