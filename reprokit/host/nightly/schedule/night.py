"""Plan a nightly run, collect its results, and close it.

Key insight: the plan and each result are files that are written completely or not at all, and the
ledger takes each result once. Whatever is killed, the next start reads the plan, takes the results
that are there, and runs the other jobs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import job_result, job_schema, quarantine
from reprokit.host.nightly.jobs.job_schema import JobResult, JobSpec, NightPlan
from reprokit.host.nightly.ledger import add_result, bugs, database, ledger_file
from reprokit.host.nightly.schedule import job_spec
from reprokit.host.nightly.suite.cells import Suite, SuiteCell
from reprokit.host.system import deletion, files, host_log

MAX_RESUME_AGE_S = 12 * 3600.0
"""An interrupted nightly run is resumed until this age; later its results count, and a new nightly
run begins.
"""
MAX_REPORTED_REFUSALS = 3
"""Maximum number of refused results of one job that are reported."""
PLAN_FILE, SEQUENCE_FILE = "plan.json", "sequence"
Say = Callable[[str], None]


@dataclass(frozen=True)
class NightJob:
    """One cell of one nightly run."""

    folder: Path
    cell: int
    key: str
    """The key of the cell."""
    label: str
    cores: int
    memory_bytes: float
    gpus: int
    expected_s: float | None
    """The time of its last run."""
    limit_s: float
    """The limit of the time of all its captures together."""


@dataclass
class Night:
    """A nightly run in progress."""

    path: Path
    name: str
    id: int
    suite: Suite
    store: database.Ledger
    jobs: list[NightJob]
    is_resumed: bool = False
    notes: list[str] = field(default_factory=list)
    """Problems of the nightly run itself."""
    taken: set[Path] = field(default_factory=set)
    """Folders whose results are in the ledger."""
    say: Say = lambda words: None
    refusals: dict[Path, int] = field(default_factory=dict)
    """The number of refused results of each folder."""

    @property
    def left(self) -> list[NightJob]:
        """The jobs without a result."""
        return [job for job in self.jobs if job.folder not in self.taken]


@contextlib.contextmanager
def lock_output(output: Path) -> Iterator[Path]:
    """Lock the output folder.

    Raises:
        BadInput: another nightly run uses it, or it is not writable.
    """
    try:
        (output / "nights").mkdir(parents=True, exist_ok=True)
        file = (output / ".lock").open("a+")
    except OSError as problem:
        raise BadInput(
            f"cannot write in {output}: {problem.strerror}; name a writable --output-dir"
        ) from problem
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            file.seek(0)
            raise BadInput(
                f"{output} is in use by {file.read().strip() or 'another nightly run'}; wait for"
                " it, or name a different --output-dir"
            ) from problem
        except OSError as problem:  # some network file systems have no locks
            host_log.log_ignored(problem)
        with host_log.suppress(OSError):  # on a full disk the lock itself still works
            file.truncate(0)
            file.write(f"process {os.getpid()} on {os.uname().nodename}")
            file.flush()
        yield output


def begin_jobs(
    suite: Suite,
    cells: tuple[SuiteCell, ...],
    pythons: dict[str, str],
    problems: dict[str, str],
    output: Path,
    store: database.Ledger,
    say: Say,
    forget: Callable[[Path], None] = lambda path: None,
) -> Night:
    """Resume the interrupted nightly run, or plan a new one.

    ``pythons`` are the interpreters of the environments; ``problems`` say why others have none.
    ``forget`` cancels the jobs of a nightly run that is not resumed.
    """
    digest = hashlib.sha256(json.dumps([suite.text, [c.key for c in cells]]).encode()).hexdigest()[
        :16
    ]
    old = _resumable_night(suite, output, store, digest, say, forget)
    if old is not None:
        return old
    path = _new_folder(output / "nights")
    plan = NightPlan(
        uid=uuid.uuid4().hex,
        suite=suite.name,
        digest=digest,
        started=time.time(),
        jobs=[
            job_spec.plan_job(suite, c, n, path, pythons, problems, store)
            for n, c in enumerate(cells, 1)
        ],
    )
    files.write_json(path / PLAN_FILE, {"schema": 1, **job_schema.struct_to_json(plan)})
    return _open(path, plan, suite, store, say)


def collect_results(night: Night, running: Iterable[NightJob] = ()) -> list[NightJob]:
    """Add new results to the ledger, and return their jobs.

    Results of jobs that are ``running`` are left out: only a target can have written them.
    """
    collected = []
    busy = {job.folder for job in running}
    for job in night.left:
        result = read_job_result(night, job) if job.folder not in busy else None
        if result is not None:
            add_result.add_result(night.store, night.id, job.cell, result, str(job.folder))
            night.taken.add(job.folder)
            collected.append(job)
            for why in result.refused:
                _report_refusal(night, f"a file of {job.label}", why)
    return collected


def read_job_result(night: Night, job: NightJob) -> JobResult | None:
    """Return the result of a job; None if there is none. Move an invalid file to the quarantine."""
    try:
        return job_result.read_result(job.folder, job.key)
    except job_schema.FailsSchema as why:
        kept = quarantine.quarantine_file(
            job.folder / job_result.RESULT_FILE, night.path.parent.parent
        )
        night.refusals[job.folder] = night.refusals.get(job.folder, 0) + 1
        # a running target may write the file repeatedly
        if night.refusals[job.folder] <= MAX_REPORTED_REFUSALS:
            what = f"{job_result.RESULT_FILE} of {job.label}"
            _report_refusal(night, what, f"{why}; see {kept}")
        return None


def record_lost_job(night: Night, job: NightJob, why: str) -> None:
    """Record why a job has no result, in its folder or, if that is not writable, in the ledger."""
    if read_job_result(night, job) is not None:
        return
    try:
        job_result.write_lost_result(job.folder, job.key, why)
    except OSError as problem:
        host_log.log_ignored(problem)
        lost = job_result.lost_result(job.key, why)
        add_result.add_result(night.store, night.id, job.cell, lost, str(job.folder))
        night.taken.add(job.folder)


def _report_refusal(night: Night, what: str, why: str) -> None:
    night.say(f"refused {what}: {why}")
    with night.store.transaction():
        bugs.add_event(night.store, 0, night.id, bugs.REFUSED_EVENT, f"{what}: {why}"[:4_000])


def end_night(night: Night, is_complete: bool) -> None:
    """End the nightly run: decide the status of bugs, and back the ledger up."""
    bugs.close_night(
        night.store, night.id, "done" if is_complete else "incomplete", "; ".join(night.notes)
    )
    night.store.back_up()


def refresh_job_spec(night: Night, job: NightJob, **variables: str) -> None:
    """Write the environment variables and the known signatures to the spec of a job that starts.

    Raises:
        OSError: the folder of the job has no valid spec, or is not writable.
    """
    path = job.folder / job_result.SPEC_FILE
    spec = None
    with host_log.suppress(job_schema.FailsSchema):
        spec = job_schema.read_struct(path, JobSpec)
    if spec is None or spec.key != job.key:
        raise FileNotFoundError(errno.ENOENT, "its spec was changed or deleted", str(path))
    spec.known, spec.environment = job_spec.known_signatures(night.store), variables
    files.write_json(path, job_schema.struct_to_json(spec))


def _resumable_night(
    suite: Suite,
    output: Path,
    store: database.Ledger,
    digest: str,
    say: Say,
    forget: Callable[[Path], None],
) -> Night | None:
    """Return the last nightly run if it can be resumed; collect and close all other open ones."""
    unfinished = []
    for path in sorted((output / "nights").iterdir(), key=_sequence):
        plan = _read_plan(path, output, say)
        if plan is None:
            continue
        row = store.fetch_one("SELECT state FROM night WHERE uid = ?", plan.uid)
        if row is None or row["state"] == "running":
            unfinished.append((path, plan, row is not None))
    for path, plan, is_known in unfinished:
        night = _open(path, plan, suite, store, say)
        collect_results(night)
        # also true if the clock was set back
        is_recent = time.time() - plan.started < MAX_RESUME_AGE_S
        is_last = path == unfinished[-1][0]
        if is_last and plan.digest == digest and is_recent and (is_known or night.left):
            night.is_resumed = True
            return night
        if night.left:
            why = "its suite has changed" if is_recent and is_last else "it is too old"
            remaining = f"{len(night.left)} of {len(night.jobs)} runs left"
            say(
                f"nightly run {night.name}, interrupted with {remaining}, is not resumed, because"
                f" {why}; the ledger keeps its results"
            )
            night.notes.append(f"interrupted with {remaining}")
            forget(path)
        # nightly runs end in order, because the order decides which bugs are new
        end_night(night, not night.left)
    return None


def _sequence(path: Path) -> tuple[int, str]:
    """Return the sort key of a nightly run in its folder, which does not depend on the clock."""
    text = files.read_text(path / SEQUENCE_FILE, 100).strip()
    return (int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0, path.name)


def _read_plan(path: Path, output: Path, say: Say) -> NightPlan | None:
    """Return the plan of a nightly run; None if there is none, or if it is refused."""
    if not job_schema.is_file_name(path.name):  # for example a copy by the user
        return None
    try:
        return job_schema.read_struct(path / PLAN_FILE, NightPlan)
    except job_schema.FailsSchema as why:
        say(
            f"refused {PLAN_FILE} of nightly run {path.name}: {why}; see"
            f" {quarantine.quarantine_file(path / PLAN_FILE, output)}"
        )
        return None


def _open(path: Path, plan: NightPlan, suite: Suite, store: database.Ledger, say: Say) -> Night:
    jobs = []
    row = store.fetch_one("SELECT id FROM night WHERE uid = ?", plan.uid)
    number = (
        int(row["id"])
        if row
        else ledger_file.begin_night(
            store, plan.uid, path.name, plan.suite, len(plan.jobs), plan.started
        )
    )
    with store.transaction():
        for planned in plan.jobs:
            cell = ledger_file.cell_id(
                store, planned.key, planned.target, planned.settings, planned.tags
            )
            jobs.append(
                NightJob(
                    path / "jobs" / planned.folder,
                    cell,
                    planned.key,
                    planned.label,
                    planned.cores,
                    planned.memory_bytes,
                    planned.gpus,
                    planned.expected_s,
                    planned.limit_s,
                )
            )
    done = {r["cell"] for r in store.fetch_all("SELECT cell FROM run WHERE night = ?", number)}
    taken = {j.folder for j in jobs if j.cell in done}
    return Night(path, path.name, number, suite, store, jobs, taken=taken, say=say)


def _new_folder(nights: Path) -> Path:
    """Create the folder of a new nightly run, named by the day, with a number where it exists."""
    day = time.strftime("%Y-%m-%d")
    number = 1 + max((_sequence(path)[0] for path in nights.iterdir()), default=0)
    for again in range(1, 1_000):
        path = nights / (day if again == 1 else f"{day}-{again}")
        if (
            path.exists()
            and not (path / PLAN_FILE).exists()
            and not any((path / "jobs").glob("*/*-*"))
        ):
            # it was killed before it had a plan, so nothing ran
            deletion.delete_path(path, inside=nights)
        with host_log.suppress(FileExistsError):
            path.mkdir()
            (path / "jobs").mkdir()
            files.write_atomically(path / SEQUENCE_FILE, f"{number}\n")
            return path
    raise BadInput(f"{nights} has a thousand nightly runs of one day")
