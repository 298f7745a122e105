"""Run the jobs of a night on a Slurm cluster: submitit submits arrays, the shared folder brings the
results back.

Key insight: Slurm says only whether a job may still come to an end; what it came to is its result
file and nothing else, so no pickle of a job is ever read, and accounting (sacct) is not needed.
What was submitted is written down before and after each submission, so that a night that is started
again finds its jobs and submits none twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import math
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.engines import slurm_commands
from reprokit.host.nightly.engines.local_engine import duration_in_words
from reprokit.host.nightly.jobs import job_result, schema
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.schedule.night import Night, NightJob
from reprokit.host.system import files, interrupts

POLL_S = 2.0
"""How often results are looked for."""
ASK_S = 10.0
"""How often the controller is asked, which is shared by many."""
GRACE_S = 60.0
"""A job that has ended may leave its result so much later: shared file systems are not seen at
once.
"""
PATIENCE_S = 900.0
"""A controller that does not answer for so long is gone; the night can be gone on with later."""
SUBMISSIONS = 2
"""So often a job is submitted that the cluster loses; one that met its time limit or was cancelled
is not again.
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
"""Reasons why a job that waits would wait for ever."""
HELD = re.compile(r"held|JobHeld|launch failed", re.IGNORECASE)
"""A node could not start it, so Slurm keeps it back until somebody looks: it is taken back and
submitted anew.
"""
LATER_S = 60.0
"""How long a cluster is left in peace that does not take one job more."""
JOURNAL = "slurm.jsonl"


@dataclass
class _Tracked:
    """What is known of one job on the cluster."""

    job: NightJob
    ids: list[str] = field(default_factory=list)
    """One a submission."""
    ended: float | None = None
    """When it was first seen to have ended without a result."""
    state: str = ""


@dataclass
class _Array:
    """One submission as the journal has it."""

    folders: list[str]
    ids: list[str] | None = None
    """None where it is not known whether it was submitted; none at all where it was not, or was
    taken back.
    """


@dataclass
class _Desk:
    """Where the jobs of a night are handed in."""

    work: Night
    say: Callable[[str], None]
    tracked: dict[Path, _Tracked]
    prefix: str
    is_restored: bool = False
    """Whether ``tracked`` has what the journal has."""
    largest: int = 0
    """Jobs that one array may have; 0 where nobody has asked yet."""
    piece: int = 0
    """Jobs that the next array may have: fewer where there were too many."""
    not_before: float = 0.0
    said: str = ""


def check_slurm() -> None:
    """Raise BadInput where there is no Slurm, or nothing to talk to it with."""
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
    patience_s: float = PATIENCE_S,
    ask_s: float = ASK_S,
    grace_s: float = GRACE_S,
) -> None:
    """Submit what is left and wait for it; returns early, with something left, where the controller
    is gone.
    """
    prefix = "reprokit-" + hashlib.sha256(str(work.path).encode()).hexdigest()[:8]
    desk = _Desk(work, say, {one.folder: _Tracked(one) for one in work.left}, prefix)
    asked = silent_since = time.monotonic()
    is_new = True
    with interrupts.allowed():
        try:
            while work.left:
                interrupts.raise_if_interrupted()
                for done in night.collect_results(work):
                    desk.tracked.pop(done.folder, None)
                if is_new or time.monotonic() - asked > ask_s:
                    asked, is_new = time.monotonic(), False
                    try:
                        _restore(desk)
                        _submit(desk)
                        _look(desk, grace_s)
                        silent_since = time.monotonic()
                    except slurm_commands.SlurmGone as problem:
                        # what was being submitted may be there: it is looked for by its name
                        desk.is_restored = False
                        silent = time.monotonic() - silent_since
                        if silent > patience_s:
                            say(
                                f"the cluster has not answered for {duration_in_words(silent)}"
                                f" ({problem}); start the night again to go on"
                            )
                            return
                show(_standing(desk))
                time.sleep(min(POLL_S, ask_s))
        except KeyboardInterrupt:
            there = dict.fromkeys(
                one.ids[-1].partition("_")[0] for one in desk.tracked.values() if one.ids
            )
            words = (
                "the jobs stay on the cluster: start the night again to go on, or scancel"
                f" {' '.join(there)}"
            )
            say(words if there else "start the night again to go on")
            raise


def holds_jobs(path: Path) -> bool:
    """Whether a night has jobs on a cluster, as far as its folder tells."""
    return any(one.ids != [] for one in _noted(path).values())


def forget_jobs(path: Path) -> None:
    """Take a night's jobs off the cluster; those stay noted that nobody took back, for want of
    Slurm or an answer.
    """
    for name, one in _noted(path).items():
        if one.ids != []:
            if not slurm_commands.cancel_jobs(f"--name={name}"):
                return
            _note(path, {"name": name, "ids": []})


def _standing(desk: _Desk) -> str:
    states: dict[str, int] = {}
    for one in desk.tracked.values():
        if one.state:
            states[one.state.lower()] = states.get(one.state.lower(), 0) + 1
    words = f"{len(desk.work.taken)} of {len(desk.work.jobs)} done"
    return ", ".join([words, *(f"{count} {state}" for state, count in sorted(states.items()))])


def _noted(path: Path) -> dict[str, _Array]:
    """What was submitted, by its name; a line is passed over that was torn when its writer was
    killed.
    """
    found: dict[str, _Array] = {}
    for line in files.read_text(path / JOURNAL).splitlines():
        with contextlib.suppress(schema.FailsSchema, KeyError):
            told = schema.convert_as(schema.parse_as(line), schema.Submission)
            if told.ids is not None:
                found[told.name].ids = told.ids
            elif told.folders is not None:
                found[told.name] = _Array(told.folders)
    return found


def _note(path: Path, told: dict[str, Any]) -> None:
    files.append_json(path / JOURNAL, told)


def _restore(desk: _Desk) -> None:
    """Find the jobs that were submitted before; raises Gone."""
    if desk.is_restored:
        return
    noted = _noted(desk.work.path)
    unsure = [
        name for name, one in noted.items() if one.ids is None
    ]  # killed, or no answer, before they were noted
    seen = {
        row[0]: number.partition("_")[0] for number, row in slurm_commands.ask_jobs(unsure).items()
    }  # first: it may raise Gone
    known: dict[str, list[str]] = {}
    for name, one in noted.items():
        if name in seen:
            is_array = len(one.folders) > 1
            one.ids = [
                f"{seen[name]}_{place}" if is_array else seen[name]
                for place in range(len(one.folders))
            ]
            _note(desk.work.path, {"name": name, "ids": one.ids})
        for folder, number in zip(one.folders, one.ids or (), strict=False):
            known.setdefault(folder, []).append(number)
    for path, job_there in desk.tracked.items():
        ids = known.get(path.name, [])
        if ids != job_there.ids:
            job_there.ids, job_there.state, job_there.ended = ids, "", None
    desk.is_restored = True


def _submit(desk: _Desk) -> None:
    """Submit what was never submitted, or was lost; arrays for what wants the same of a node."""
    groups: dict[tuple[int, int, int, int], list[_Tracked]] = {}
    for one in desk.tracked.values():
        if not one.ids or (one.state == "LOST" and len(one.ids) < SUBMISSIONS):
            asked = one.job
            wants = (
                asked.cores,
                math.ceil(asked.memory_bytes / 1e9),
                asked.gpus,
                math.ceil(asked.limit_s / 60),
            )
            groups.setdefault(wants, []).append(one)
            one.state = one.state or "UNSUBMITTED"
    if not groups or time.monotonic() < desk.not_before:
        return
    if not desk.largest:
        desk.largest = desk.piece = slurm_commands.largest_array()
    for wants, group in groups.items():
        while group:
            count = desk.piece
            if not _submit_array(desk, wants, group[:count]):
                break
            group = group[count:]


def _submit_array(desk: _Desk, wants: tuple[int, int, int, int], group: list[_Tracked]) -> bool:
    """Submit one array; False where it is too much for now."""
    path = desk.work.path
    name = f"{desk.prefix}-{len(files.read_text(path / JOURNAL).splitlines())}"
    jobs = f"{len(group)} job{'s' if len(group) > 1 else ''}"
    for one in [*group]:
        try:
            night.refresh_plan(desk.work, one.job)
        except OSError as problem:
            group.remove(one)
            night.give_up(desk.work, one.job, f"its folder cannot be used: {problem.strerror}")
    if not group:
        return True
    _note(path, {"name": name, "folders": [one.job.folder.name for one in group]})
    try:
        ids = slurm_commands.submit_array(
            desk.work, name, wants, [str(one.job.folder) for one in group]
        )
    except slurm_commands.SlurmRefused as problem:
        _note(path, {"name": name, "ids": []})
        desk.say(f"Slurm refuses {jobs}: {problem}")
        for one in group:
            night.give_up(
                desk.work,
                one.job,
                f"Slurm refuses it: {problem}; mend [slurm] or what the target needs",
            )
        return True
    except slurm_commands.SlurmBusy as problem:
        _note(path, {"name": name, "ids": []})
        desk.piece = max(1, len(group) // 2)
        if len(group) == 1:
            desk.not_before = time.monotonic() + LATER_S
            if desk.said != str(problem):
                desk.said = str(problem)
                desk.say(
                    f"Slurm takes no more jobs for now, the others are submitted later: {problem}"
                )
        return False
    _note(path, {"name": name, "ids": ids})
    for one, number in zip(group, ids, strict=True):
        one.ids.append(number)
        one.state, one.ended = "PENDING", None
    desk.piece = min(desk.largest, 2 * desk.piece)
    desk.say(f"submitted {jobs} as {ids[0].partition('_')[0]} ({name})")
    return True


def _look(desk: _Desk, grace_s: float) -> None:
    """Ask what became of the jobs; one that has ended without a result is lost."""
    last = {one.ids[-1] for one in desk.tracked.values() if one.ids}
    states = slurm_commands.ask_jobs(
        [name for name, one in _noted(desk.work.path).items() if not last.isdisjoint(one.ids or ())]
    )
    for folder, one in list(desk.tracked.items()):
        if not one.ids:
            continue
        _, state, reason = states.get(one.ids[-1], ("", "", ""))
        is_stuck = state == "PENDING" and (reason in NEVER or HELD.search(reason) is not None)
        if state in ALIVE and not is_stuck:
            one.state, one.ended = state, None
            continue
        one.ended = one.ended or time.monotonic()
        if time.monotonic() - one.ended < grace_s or (folder / job_result.RESULT).exists():
            continue
        lost = state if state not in ("", "COMPLETED") else "it left no result"
        if is_stuck:
            lost = reason
            slurm_commands.cancel_jobs(one.ids[-1])
        if state not in FINAL and reason not in NEVER and len(one.ids) < SUBMISSIONS:
            desk.say(
                f"{one.job.label}: the cluster lost job {one.ids[-1]} ({lost}); submitting it again"
            )
            one.state = "LOST"
        else:
            logs = desk.work.path / "slurm" / f"{one.ids[-1]}_0_log.err"
            night.give_up(desk.work, one.job, f"Slurm ended job {one.ids[-1]}: {lost} (see {logs})")
