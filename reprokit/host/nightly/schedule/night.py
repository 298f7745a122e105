"""One night: planned whole, run in any order, collected from files, closed once.

Key insight: the plan and each result are files that are there whole or not at all, and the ledger
takes each result once. Whatever is killed, the next start reads the plan, takes what is done and
runs what is not.
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
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.jobs import job_result, quarantine, schema
from reprokit.host.nightly.ledger import add_result, bugs, database, ledger_file
from reprokit.host.nightly.schedule import job_spec as planning
from reprokit.host.nightly.suite.cells import Suite, SuiteCell
from reprokit.host.system import deletion, files

RESUME_S = 12 * 3600.0
"""A night that was cut short is gone on with so long; later its results count, and a new night
begins.
"""
MOST_REFUSALS = 3
"""Maximum number of refused results of one job that are reported."""
PLAN, SEQUENCE = "plan.json", "sequence"
Say = Callable[[str], None]


@dataclass(frozen=True)
class NightJob:
    """One cell of one night."""

    folder: Path
    cell: int
    key: str
    """Of the cell."""
    label: str
    cores: int
    memory_bytes: float
    gpus: int
    expected_s: float | None
    """What it took the last time."""
    limit_s: float
    """What it may take at most, all its captures together."""


@dataclass
class Night:
    """A night that is being run."""

    path: Path
    name: str
    id: int
    suite: Suite
    store: database.Ledger
    jobs: list[NightJob]
    is_resumed: bool = False
    notes: list[str] = field(default_factory=list)
    """What went wrong with the night itself."""
    taken: set[Path] = field(default_factory=set)
    """Folders whose results are in the ledger."""
    say: Say = lambda words: None
    refusals: dict[Path, int] = field(default_factory=dict)
    """The number of refused results of each folder."""

    @property
    def left(self) -> list[NightJob]:
        """What has no result yet."""
        return [one for one in self.jobs if one.folder not in self.taken]


@contextlib.contextmanager
def hold_night(output: Path) -> Iterator[Path]:
    """Hold the folder of all nights; raises BadInput where another night is at it."""
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
                f"{output} is in use by {file.read().strip() or 'another night'}; wait for it, or"
                " name another --output-dir"
            ) from problem
        except OSError:  # some network file systems have no locks
            pass
        with contextlib.suppress(OSError):  # a full disk still has room for the lock itself
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
    """Go on with the night that was cut short, or plan a new one.

    ``pythons`` are the interpreters of the environments; ``problems`` say why others have none.
    ``forget`` takes what a night that is given up has left elsewhere back.
    """
    digest = hashlib.sha256(json.dumps([suite.text, [c.key for c in cells]]).encode()).hexdigest()[
        :16
    ]
    old = _cut_short(suite, output, store, digest, say, forget)
    if old is not None:
        return old
    path = _new_folder(output / "nights")
    told = {
        "schema": 1,
        "uid": uuid.uuid4().hex,
        "suite": suite.name,
        "digest": digest,
        "started": time.time(),
        "jobs": [
            planning.plan_job(suite, c, n, path, pythons, problems, store)
            for n, c in enumerate(cells, 1)
        ],
    }
    files.write_json(path / PLAN, told)
    return _open(path, told, suite, store, say)


def collect_results(night: Night, running: Iterable[NightJob] = ()) -> list[NightJob]:
    """Take results that are there and not in the ledger yet; gives their jobs.

    Not of those that are ``running``: what lies there then, their target has written.
    """
    found = []
    busy = {one.folder for one in running}
    for one in night.left:
        told = read_night(night, one) if one.folder not in busy else {}
        if told:
            add_result.add_result(night.store, night.id, one.cell, told)
            night.taken.add(one.folder)
            found.append(one)
            for words in told["refused"]:
                _refused(night, f"a file of {one.label}", words)
    return found


def read_night(night: Night, one: NightJob) -> dict[str, Any]:
    """The result of a job; empty if there is none. An invalid file goes to the quarantine."""
    try:
        return job_result.read_result(one.folder, one.key)
    except schema.FailsSchema as why:
        kept = quarantine.quarantine_file(one.folder / job_result.RESULT, night.path.parent.parent)
        night.refusals[one.folder] = night.refusals.get(one.folder, 0) + 1
        if night.refusals[one.folder] <= MOST_REFUSALS:  # a running target may write it repeatedly
            _refused(night, f"{job_result.RESULT} of {one.label}", f"{why}; see {kept}")
        return {}


def give_up(night: Night, one: NightJob, why: str) -> None:
    """Record why a job has no result: in its folder, or in the ledger if the folder is not
    writable.
    """
    if read_night(night, one):
        return
    try:
        job_result.give_up(one.folder, one.key, why)
    except OSError:
        add_result.add_result(
            night.store, night.id, one.cell, job_result.lost_result(one.folder, one.key, why)
        )
        night.taken.add(one.folder)


def _refused(night: Night, what: str, why: str) -> None:
    night.say(f"refused {what}: {why}")
    with night.store.change():
        bugs.bug_event(night.store, 0, night.id, bugs.REFUSED, f"{what}: {why}"[:4_000])


def end_night(night: Night, is_complete: bool) -> None:
    """End the night: bugs get their status, and the ledger is copied."""
    bugs.close_night(
        night.store, night.id, "done" if is_complete else "incomplete", "; ".join(night.notes)
    )
    night.store.back_up()


def refresh_plan(night: Night, one: NightJob, **variables: str) -> None:
    """Write into the spec of a job, before it starts, its environment variables and the failures
    that have a repro.

    Raises OSError if its folder has no spec.
    """
    spec = files.read_object(one.folder / job_result.SPEC)
    if spec.get("key") != one.key:
        raise FileNotFoundError(
            errno.ENOENT, "its spec was changed or deleted", str(one.folder / job_result.SPEC)
        )
    spec.update(known=planning.known_signatures(night.store), environment=variables)
    files.write_json(one.folder / job_result.SPEC, spec)


def _cut_short(
    suite: Suite,
    output: Path,
    store: database.Ledger,
    digest: str,
    say: Say,
    forget: Callable[[Path], None],
) -> Night | None:
    """The last night where it can be gone on with; older ones are collected and closed."""
    unfinished = []
    for path in sorted((output / "nights").iterdir(), key=_sequence):
        told = _read_plan(path, output, say)
        row = store.one("SELECT state FROM night WHERE uid = ?", told["uid"]) if told else None
        if told and (row is None or row["state"] == "running"):
            unfinished.append((path, told, row is not None))
    for path, told, is_known in unfinished:
        night = _open(path, told, suite, store, say)
        collect_results(night)
        is_recent = (
            time.time() - float(told["started"]) < RESUME_S
        )  # also where the clock was put back
        is_last = path == unfinished[-1][0]
        if is_last and told["digest"] == digest and is_recent and (is_known or night.left):
            night.is_resumed = True
            return night
        if night.left:
            why = "its suite was changed since" if is_recent and is_last else "it is too long ago"
            of = f"{len(night.left)} of {len(night.jobs)} runs left"
            say(f"night {night.name} was cut short with {of}, and {why}: its results count")
            night.notes.append(f"cut short with {of}")
            forget(path)
        end_night(
            night, not night.left
        )  # before the next one is looked at: what is new follows from the order
    return None


def _sequence(path: Path) -> tuple[int, str]:
    """How nights of one folder are ordered, whatever the clock has done."""
    text = files.read_text(path / SEQUENCE, 100).strip()
    return (int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0, path.name)


def _read_plan(path: Path, output: Path, say: Say) -> dict[str, Any]:
    """The plan of a night; empty if there is none, or if it is refused: its night is then not
    resumed.
    """
    if not schema.is_file_name(path.name):  # for example a copy that a person made
        return {}
    try:
        told = schema.read_as(path / PLAN, schema.NightPlan)
    except schema.FailsSchema as why:
        say(
            f"refused {PLAN} of night {path.name}: {why}; see"
            f" {quarantine.quarantine_file(path / PLAN, output)}"
        )
        return {}
    return schema.plain_value(told) if told else {}


def _open(
    path: Path, told: dict[str, Any], suite: Suite, store: database.Ledger, say: Say
) -> Night:
    jobs = []
    row = store.one("SELECT id FROM night WHERE uid = ?", told["uid"])
    number = (
        int(row["id"])
        if row
        else ledger_file.begin_night(
            store, told["uid"], path.name, told["suite"], len(told["jobs"]), told["started"]
        )
    )
    with store.change():
        for planned in told["jobs"]:
            cell = ledger_file.cell_id(
                store, planned["key"], planned["target"], planned["settings"], planned["tags"]
            )
            needs = {
                k: planned[k]
                for k in ("key", "label", "cores", "memory_bytes", "gpus", "expected_s", "limit_s")
            }
            jobs.append(NightJob(path / "jobs" / planned["folder"], cell, **needs))
    done = {r["cell"] for r in store.all("SELECT cell FROM run WHERE night = ?", number)}
    taken = {j.folder for j in jobs if j.cell in done}
    return Night(path, path.name, number, suite, store, jobs, taken=taken, say=say)


def _new_folder(nights: Path) -> Path:
    """A folder of its own for a new night, named by the day; a clock that was put back makes a
    number, not a clash.
    """
    day = time.strftime("%Y-%m-%d")
    number = 1 + max((_sequence(path)[0] for path in nights.iterdir()), default=0)
    for again in range(1, 1_000):
        path = nights / (day if again == 1 else f"{day}-{again}")
        if path.exists() and not (path / PLAN).exists() and not any((path / "jobs").glob("*/*-*")):
            deletion.delete(path, inside=nights)  # killed before it was planned, so nothing ran
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            (path / "jobs").mkdir()
            files.write_whole(path / SEQUENCE, f"{number}\n")
            return path
    raise BadInput(f"{nights} has a thousand nights of one day")
