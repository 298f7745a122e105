"""One night: planned whole, run in any order, collected from files, closed once.

Key insight: the plan and each result are files that are there whole or not at all, and the ledger takes each result
once. Whatever is killed, the next start reads the plan, takes what is done and runs what is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core import knobs
from ...core.records import BadInput
from ...core.triage import trend
from .. import files
from . import bugs, job, ledger, record
from .suite import Cell, Environment, Suite

RESUME_S = 12 * 3600.0
"""A night that was cut short is gone on with so long; later its results count, and a new night begins."""
MEMORY_BYTES = 2e9
"""What a run is given that nobody knows of."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One cell of one night."""

    folder: Path
    cell: int
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
    store: ledger.Ledger
    jobs: list[Job]
    is_resumed: bool = False
    notes: list[str] = field(default_factory=list)
    """What went wrong with the night itself."""
    taken: set[Path] = field(default_factory=set)
    """Folders whose results are in the ledger."""

    @property
    def left(self) -> list[Job]:
        """What has no result yet."""
        return [one for one in self.jobs if one.folder not in self.taken]


@contextlib.contextmanager
def hold(output: Path) -> Iterator[Path]:
    """Hold the folder of all nights; raises BadInput where another night is at it."""
    try:
        (output / "nights").mkdir(parents=True, exist_ok=True)
        file = (output / ".lock").open("a+")
    except OSError as problem:
        raise BadInput(f"cannot write in {output}: {problem.strerror}; name a writable --output-dir") from problem
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            file.seek(0)
            raise BadInput(
                f"{output} is in use by {file.read().strip() or 'another night'}; wait for it, or name another --output-dir"
            ) from problem
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}")
        file.flush()
        yield output


def begin(
    suite: Suite, cells: tuple[Cell, ...], pythons: dict[str, str], problems: dict[str, str], output: Path,
    store: ledger.Ledger, say: Say,
) -> Night:  # fmt: skip
    """Go on with the night that was cut short, or plan a new one.

    ``pythons`` are the interpreters of the environments; ``problems`` say why others have none.
    """
    digest = hashlib.sha256(json.dumps([suite.text, [c.key for c in cells]]).encode()).hexdigest()[:16]
    old = _cut_short(suite, output, store, digest, say)
    if old is not None:
        return old
    path = _new_folder(output / "nights")
    jobs = [_plan(suite, cell, number, path, pythons, problems, store) for number, cell in enumerate(cells, 1)]
    told = {
        "schema": 1, "suite": suite.name, "digest": digest, "started": time.time(),
        "jobs": [{**row, "folder": row["folder"].name} for row in jobs],
    }  # fmt: skip
    files.write_json(path / "plan.json", told)
    return _open(path, told, suite, store)


def collect(night: Night) -> list[Job]:
    """Take results that are there and not in the ledger yet; gives their jobs."""
    found = []
    for one in night.left:
        result = job.read_result(one.folder)
        if result:
            record.record(night.store, night.id, one.cell, result)
            night.taken.add(one.folder)
            found.append(one)
    return found


def close(night: Night, is_complete: bool) -> None:
    """End the night: bugs get their status, and the ledger is copied."""
    bugs.close_night(night.store, night.id, "done" if is_complete else "incomplete", "; ".join(night.notes))
    night.store.back_up()


def give_up(one: Job, why: str) -> None:
    """Leave a result for a job that has none and will get none."""
    key = json.loads(files.read_text(one.folder / job.SPEC) or "{}").get("key", "")
    told = {"schema": job.SCHEMA, "key": key, "expect": [], "folder": str(one.folder), "attempts": [], "problem": why}
    files.write_json(one.folder / job.RESULT, told)


def refresh(night: Night, one: Job) -> None:
    """Tell a job, just before it starts, which failures the ledger has a repro of by now."""
    spec = json.loads(files.read_text(one.folder / job.SPEC))
    spec["known"] = _known(night.store)
    files.write_json(one.folder / job.SPEC, spec)


def _cut_short(suite: Suite, output: Path, store: ledger.Ledger, digest: str, say: Say) -> Night | None:
    """The last night where it can be gone on with; older ones are collected and closed."""
    found: list[Night] = []
    for path in sorted((output / "nights").iterdir(), key=lambda p: p.name):
        told = _read_plan(path)
        row = store.one("SELECT state FROM night WHERE name = ?", path.name)
        if told and (row is None or row["state"] == "running"):
            night = _open(path, told, suite, store)
            collect(night)
            found.append(night)
    going_on = None
    for night in found:
        told = _read_plan(night.path)
        is_recent = time.time() - float(told["started"]) < RESUME_S  # also where the clock was put back
        if night is found[-1] and told["digest"] == digest and is_recent:
            night.is_resumed = True
            going_on = night
            continue
        why = "its suite was changed since" if is_recent and night is found[-1] else "it is too long ago"
        if night.left:
            say(
                f"night {night.name} was cut short with {len(night.left)} of {len(night.jobs)} runs left, and {why}: its results count"
            )
            night.notes.append(f"cut short with {len(night.left)} runs left")
        close(night, not night.left)
    return going_on


def _read_plan(path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        told = json.loads(files.read_text(path / "plan.json") or "{}")
        if isinstance(told, dict):
            return told
    return {}


def _open(path: Path, told: dict[str, Any], suite: Suite, store: ledger.Ledger) -> Night:
    jobs = []
    row = store.one("SELECT id, name FROM night WHERE name = ?", path.name)
    number = (
        int(row["id"])
        if row
        else ledger.begin_night(store, path.name, told["suite"], len(told["jobs"]), told["started"])
    )
    with store.change():
        for planned in told["jobs"]:
            cell = ledger.cell_id(store, planned["key"], planned["target"], planned["settings"], planned["tags"])
            needs = {k: planned[k] for k in ("label", "cores", "memory_bytes", "gpus", "expected_s", "limit_s")}
            jobs.append(Job(path / "jobs" / planned["folder"], cell, **needs))
    done = {r["cell"] for r in store.all("SELECT cell FROM run WHERE night = ?", number)}
    return Night(path, path.name, number, suite, store, jobs, taken={j.folder for j in jobs if j.cell in done})


def _new_folder(nights: Path) -> Path:
    """A folder of its own for a new night, named by the day; a clock that was put back makes a number, not a clash."""
    day = time.strftime("%Y-%m-%d")
    for number in range(1, 1_000):
        path = nights / (day if number == 1 else f"{day}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            (path / "jobs").mkdir()
            return path
        if not (path / "plan.json").exists():  # killed before it was planned: nothing was run
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            (path / "jobs").mkdir()
            return path
    raise BadInput(f"{nights} has a thousand nights of one day")


def _plan(
    suite: Suite,
    cell: Cell,
    number: int,
    path: Path,
    pythons: dict[str, str],
    problems: dict[str, str],
    store: ledger.Ledger,
) -> dict[str, Any]:
    """Write what one job is to do; gives its row of the plan."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", cell.target.replace(".py:", "-").rpartition("/")[2]).strip("-.")[:40]
    folder = path / "jobs" / f"{number:04d}-{name or 'target'}"
    folder.mkdir()
    known = store.one("SELECT id FROM cell WHERE key = ?", cell.key)
    before = int(known["id"]) if known else 0
    environment: Environment = suite.environments[cell.settings["environment"]]
    python, limits = pythons.get(environment.name, ""), cell.limits
    words, target = capture_words(cell, python)
    limit_s = 4 * limits.timeout_s + limits.budget_s * 3 + job.SLACK_S
    usual = {what: record.usual(store, before, what) for what in trend.KINDS} if before else {}
    spec = {
        "schema": job.SCHEMA, "key": cell.key, "words": words, "target": target, "python": python,
        "cwd": str(suite.path.resolve().parent), "retries": limits.retries, "budget_s": limits.budget_s, "limit_s": limit_s,
        "expect": list(cell.expect), "warms": not cell.command, "environment": {}, "known": [],
        "settled": _settled(store, before), "limits": {what: found.limit for what, found in usual.items() if found},
    }  # fmt: skip
    files.write_json(folder / job.SPEC, spec)
    row = store.one("SELECT seconds FROM run WHERE cell = ? AND kind != '' ORDER BY night DESC LIMIT 1", before)
    peak = store.one(
        "SELECT max(peak_rss_bytes) AS most FROM (SELECT peak_rss_bytes FROM run WHERE cell = ? ORDER BY night DESC LIMIT 5)",
        before,
    )
    memory = limits.memory_gb * 1e9 or (1.25 * peak["most"] + 3e8 if peak and peak["most"] else MEMORY_BYTES)
    planned = {
        "folder": folder, "key": cell.key, "target": cell.target, "tags": list(cell.tags), "label": cell.label(() if len(suite.environments) > 1 else ("environment",)),
        "settings": {**cell.settings, **cell.knobs, **({"device": cell.device} if cell.device else {})},
        "cores": limits.cores, "memory_bytes": memory, "gpus": limits.gpus, "expected_s": row["seconds"] if row else None,
        "limit_s": limit_s * (1 + limits.retries),
    }  # fmt: skip
    if why := problems.get(environment.name):
        give_up(Job(folder, 0, cell.target, 1, 0.0, 0, None, 0.0), f"environment {environment.name}: {why}")
    return planned


def capture_words(cell: Cell, python: str) -> tuple[list[str], list[str]]:
    """The words of ``reprokit capture`` for a cell, and those that name the target, which stand last."""
    limits = cell.limits
    words = [
        "capture",
        "--json",
        "--no-minimize",
        "--no-ablate",
        "--timeout",
        f"{limits.timeout_s:g}",
        "--stall",
        f"{limits.stall_s:g}",
    ]
    if cell.command:
        return words, ["--", *(python if word == "{python}" else word for word in cell.command)]
    for name, value in cell.settings.items():
        if name == "environment":
            words += ["--python", python]
        elif value is True:
            words.append("--" + name)
        elif value is False:
            words += ["--no-dynamic"] if name == "dynamic" else []
        else:
            words += ["--" + name, str(value)]
    for name, value in cell.knobs.items():
        words += knobs.words(name, value)
    if cell.device:
        words += ["--device", cell.device]
    return words, ["--model", cell.target]


def _known(store: ledger.Ledger) -> list[str]:
    """Signatures whose bug has a proved repro, or that nobody wants to hear of."""
    rows = store.all(
        "SELECT s.id FROM signature s JOIN bug b ON b.id = s.bug WHERE b.repro_lines IS NOT NULL OR b.muted IS NOT NULL"
    )
    return [r["id"] for r in rows]


def _settled(store: ledger.Ledger, cell: int) -> list[str]:
    """Signatures that this cell has shown in every one of at least three runs: one more tells nothing."""
    return [
        r["signature"]
        for r in store.all("SELECT signature FROM place WHERE cell = ? AND hits >= 3 AND hits >= runs", cell)
    ]
