"""What a hunt has found, in its folder: one JSON line for each target, and a file for each failure.

The lines are only appended, so a hunt that is started again goes on after the last target.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.core.shared.hunted_programs import Steering, no_steering, note_program
from reprokit.host.system import files, host_log

HUNT_FILE, OUTCOMES_FILE, PROGRAMS_FOLDER = "hunt.json", "outcomes.jsonl", "programs"
TEXTS_FILE, STEERING_FILE = "texts.jsonl", "steering.json"
"""The text of each target, and what the targets of each source have run."""
CRASH, HANG, LOST = "crash", "hang", "lost"
FINDINGS = ("exception", "wrong-result", CRASH, HANG)
"""The outcomes that are captured; the others are only counted."""


@dataclass(frozen=True)
class HuntPlan:
    """What a folder hunts for; it stays the same in all parts of the hunt."""

    sources: tuple[str, ...]
    """Each is a name, or ``NAME=PLACE``."""
    seed: int
    python: str


@dataclass(frozen=True)
class Outcome:
    """What one target did."""

    number: int
    source: str
    kind: str
    detail: str = ""
    group: str = ""
    """Findings with the same group probably have the same cause; one of them is captured."""
    cpu_s: float = 0.0

    @property
    def is_finding(self) -> bool:
        """Whether it may be a failure of the compiler."""
        return self.kind in FINDINGS


class HuntFolder:
    """The folder of a hunt, which one process at a time uses."""

    def __init__(self, path: Path, plan: HuntPlan, limit_s: float) -> None:
        """``limit_s`` is the most that a program may take, in seconds."""
        self.path, self.plan, self.limit_s = path, plan, limit_s
        self.outcomes = _read_outcomes(path / OUTCOMES_FILE)
        self.steering: dict[str, Steering] = files.read_json_object(path / STEERING_FILE)

    @property
    def next_number(self) -> int:
        """The number of the first target that has not run."""
        return self.outcomes[-1].number + 1 if self.outcomes else 0

    @property
    def counts(self) -> dict[str, int]:
        """How many targets had each outcome, the most frequent first."""
        return dict(collections.Counter(one.kind for one in self.outcomes).most_common())

    def add_outcome(self, outcome: Outcome, row: Mapping[str, Any]) -> None:
        """Add the outcome of the next target, and what its process wrote about it."""
        text = str(row["text"])
        if outcome.is_finding:
            files.write_atomically(self.program_of(outcome), text)
        files.append_json(self.path / TEXTS_FILE, {"number": outcome.number, "text": text})
        files.append_json(self.path / OUTCOMES_FILE, dataclasses.asdict(outcome))
        self.outcomes.append(outcome)
        steering = self.steering.setdefault(outcome.source, no_steering())
        note_program(steering, row.get("chosen", ()), row.get("ran", ()))

    @property
    def has_steering(self) -> bool:
        """Whether the choices of the next targets are steered by a file."""
        return (self.path / STEERING_FILE).exists()

    def keep_steering(self) -> None:
        """Write what the targets have run, which steers the choices of the next ones."""
        files.write_json(self.path / STEERING_FILE, self.steering)

    def program_of(self, outcome: Outcome) -> Path:
        """Return the file of the program of a finding."""
        return self.path / PROGRAMS_FOLDER / f"{outcome.source}_{outcome.number:06d}.py"

    def groups(self) -> dict[str, list[Outcome]]:
        """Return the findings by their group, in the order in which they were found."""
        found: dict[str, list[Outcome]] = {}
        for one in self.outcomes:
            if one.is_finding:
                found.setdefault(f"{one.kind} {one.group}", []).append(one)
        return found


def _read_outcomes(path: Path) -> list[Outcome]:
    """Return the complete lines of the file, up to the first number that is missing."""
    rows: list[Outcome] = []
    names = {field.name for field in dataclasses.fields(Outcome)}
    for line in files.read_text(path).splitlines():
        row = files.parse_json_object(line)
        if row.keys() == names and row["number"] == len(rows):
            rows.append(Outcome(**row))
    return rows


@contextlib.contextmanager
def open_hunt(path: Path, chosen: HuntPlan, limit_s: float) -> Iterator[HuntFolder]:
    """Open the folder of a hunt, or make it; yield it.

    Raises:
        BadInput: the folder has a different hunt, is in use, or cannot be written.
    """
    plan = {"schema": 1, **dataclasses.asdict(chosen), "sources": list(chosen.sources)}
    try:
        (path / PROGRAMS_FOLDER).mkdir(parents=True, exist_ok=True)
        file = (path / ".hunt.lock").open("a+")
    except OSError as problem:
        raise BadInput(
            f"cannot write in {path}: {problem.strerror}; name a writable --output-dir"
        ) from problem
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise BadInput(
                f"another hunt uses {path}; wait for it, or name a different --output-dir"
            ) from problem
        except OSError as problem:  # some network file systems have no locks
            host_log.log_ignored(problem)
        kept: dict[str, Any] = files.read_json_object(path / HUNT_FILE)
        if kept and kept != plan:
            was = f"--source {','.join(kept.get('sources', []))} --seed {kept.get('seed')}"
            raise BadInput(
                f"{path} has a hunt with {was} and {kept.get('python')}; continue it with these, or"
                " name a different --output-dir"
            )
        if not kept:
            if os.listdir(path / PROGRAMS_FOLDER) or (path / OUTCOMES_FILE).exists():
                raise BadInput(f"{path} has no {HUNT_FILE}; name a different --output-dir")
            files.write_json(path / HUNT_FILE, plan)
        yield HuntFolder(path, chosen, limit_s)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the JSON lines that the process of a batch has written, without an incomplete one."""
    rows = []
    for line in files.read_text(path).splitlines():
        with host_log.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows
