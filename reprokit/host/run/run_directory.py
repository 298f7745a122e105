"""One directory a run: where it lies, who holds it, and how it is laid out."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.system import deletion

FOLDERS = ("journal", "graphs", "stacks", "logs", "trace")
TEMPORARY = ("agent", "cache", "warm")
"""Folders that exist only during a run; the copy of the agent is always one of them."""
RESULTS = "results"
"""Folder of the results of the runs, which are the user's data: never packed, and deleted after the
comparison.
"""


class NothingRan(BadInput):
    """The target does not exist, so nothing ran and its run directory is of no use."""


@dataclass
class RunDir:
    """The run directory, held under a lock for as long as reprokit works in it."""

    output: Path
    """Where the pack is left; what ``--output-dir`` names."""
    path: Path
    """``run-001`` below it: everything the run left, before redaction. Never leaves the machine."""
    _lock: IO[str]
    _made: tuple[Path, ...] = ()
    """The folders that were made for it, innermost first."""

    def discard(self) -> None:
        """Remove what was made for a run of nothing; other files stay."""
        deletion.delete(self.path, inside=self.output)
        deletion.delete(self.output / ".lock", inside=self.output)
        for folder in self._made:
            deletion.delete_empty(folder, inside=folder.parent)

    def another(self) -> RunDir:
        """A further run directory below the same output, under the same lock."""
        path = _next_run(self.output)
        make_folders(path)
        return RunDir(self.output, path, self._lock)

    def release(self) -> None:
        """Let the next capture in; the files stay."""
        if self.output.is_dir():
            deletion.delete(self.output / ".lock", inside=self.output)
        self._lock.close()


def create_run(output: Path | None, label: str) -> RunDir:
    """Make a run directory below ``output`` (default ``reprokit-out/<label>-<time>``) or raise
    BadInput.
    """
    place = (
        output or Path("reprokit-out") / f"{label}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    )
    made = tuple(p.absolute() for p in (place, *place.parents) if not p.exists())
    try:
        place.mkdir(parents=True, exist_ok=True)
        place = place.resolve()
        lock = _lock(place)
        path = _next_run(place)
        make_folders(path)
    except OSError as problem:
        where = "--output-dir" if output else "the current directory"
        raise BadInput(
            f"cannot write below {place}: {problem.strerror or problem}; name a writable"
            " --output-dir" + ("" if output else f" ({where} is not)")
        ) from problem
    return RunDir(place, path, lock, made)


def reopen_run(path: Path) -> RunDir:
    """Hold a run directory that an earlier capture left; raises BadInput for anything else."""
    if not (path / run_names.RUN_FILE).is_file():
        raise BadInput(
            f"{path} is no run directory: it has no run.json; name a run-NNN that reprokit capture"
            " made"
        )
    path = path.resolve()
    try:
        return RunDir(path.parent, path, _lock(path.parent))
    except OSError as problem:
        raise BadInput(f"cannot write in {path.parent}: {problem.strerror or problem}") from problem


def make_folders(path: Path) -> None:
    """Make the folders that target and watcher write into."""
    for name in FOLDERS:
        (path / name).mkdir(parents=True, exist_ok=True)


def _lock(place: Path) -> IO[str]:
    file = (place / ".lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise BadInput(
            f"{place} is in use by {holder}; name another --output-dir, or wait for it"
        ) from problem
    # some network file systems have no locks; run directories have their own numbers all the same
    except OSError:
        return file
    _sweep(place)  # no other process works here
    file.truncate(0)
    file.write(f"reprokit, process {os.getpid()}")
    file.flush()
    return file


def _sweep(place: Path) -> None:
    """Delete temporary folders of a reprokit that was killed together with its guardians."""
    for run in place.glob("run-[0-9][0-9][0-9]*"):
        deletion.delete(run / RESULTS, inside=run)
        for depth in ("", "*/", "*/*/", "*/*/*/"):
            for package in run.glob(f"{depth}agent/_reprokit"):
                if package.resolve() != package:  # through a link that the target made
                    continue
                for name in TEMPORARY:
                    deletion.delete(package.parent.with_name(name), inside=run)


def _next_run(place: Path) -> Path:
    number = 1
    while True:
        path = place / f"run-{number:03d}"
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
