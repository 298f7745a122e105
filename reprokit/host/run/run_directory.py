"""Create, lock, reopen and delete run directories."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.system import deletion, host_log

RUN_FOLDERS = ("journal", "graphs", "stacks", "logs", "trace")
TEMPORARY_FOLDERS = ("agent", "cache", "warm")
"""Folders that exist only during a run; one of them is always the copy of the agent."""
RESULTS_FOLDER = "results"
"""The folder with the results of the runs. They are data of the user, so they are never packed, and
deleted after the comparison.
"""


class NothingRan(BadInput):
    """The target does not exist, so nothing ran and its run directory is deleted."""


@dataclass
class RunDir:
    """A run directory, which is locked while reprokit works in it."""

    output: Path
    """The folder of the pack, which ``--output-dir`` names."""
    path: Path
    """``run-001`` in ``output``: the data of the run before redaction, which never leave the
    machine.
    """
    _lock: IO[str]
    _created: tuple[Path, ...] = ()
    """The folders that were created for it, innermost first."""

    def delete_run(self) -> None:
        """Delete the run directory and the empty folders that were created for it."""
        deletion.delete_path(self.path, inside=self.output)
        deletion.delete_path(self.output / ".lock", inside=self.output)
        for folder in self._created:
            deletion.delete_empty_folder(folder, inside=folder.parent)

    def create_next_run(self) -> RunDir:
        """Create a further run directory in the same output folder, under the same lock."""
        path = _next_run(self.output)
        make_folders(path)
        return RunDir(self.output, path, self._lock)

    def release_lock(self) -> None:
        """Release the lock, so that a different capture can use the output folder."""
        if self.output.is_dir():
            deletion.delete_path(self.output / ".lock", inside=self.output)
        self._lock.close()


def create_run_directory(output: Path | None, label: str) -> RunDir:
    """Create a run directory in ``output`` (default ``reprokit-out/<label>-<time>``).

    Raises BadInput if that is not possible.
    """
    folder = (
        output or Path("reprokit-out") / f"{label}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    )
    created = tuple(p.absolute() for p in (folder, *folder.parents) if not p.exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        lock = _lock(folder)
        path = _next_run(folder)
        make_folders(path)
    except OSError as problem:
        advice = "" if output else " (the current directory is not)"
        raise cannot_write(folder, problem, advice) from problem
    return RunDir(folder, path, lock, created)


def cannot_write(folder: Path, problem: OSError, more: str = "") -> BadInput:
    """Return the error that says that the output folder is not writable."""
    return BadInput(
        f"cannot write below {folder}: {problem.strerror or problem}; name a writable"
        f" --output-dir{more}"
    )


def reopen_run_directory(path: Path) -> RunDir:
    """Lock the run directory of an earlier capture. Raises BadInput for any other folder."""
    if not (path / run_names.RUN_FILE).is_file():
        raise BadInput(
            f"{path} is not a run directory: it has no run.json; name a folder run-NNN that"
            " reprokit capture created"
        )
    path = path.resolve()
    try:
        return RunDir(path.parent, path, _lock(path.parent))
    except OSError as problem:
        raise BadInput(f"cannot write in {path.parent}: {problem.strerror or problem}") from problem


def make_folders(path: Path) -> None:
    """Create the folders that the agent and the host write into."""
    for name in RUN_FOLDERS:
        (path / name).mkdir(parents=True, exist_ok=True)


def _lock(output: Path) -> IO[str]:
    file = (output / ".lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        file.seek(0)
        holder = file.read().strip() or "a different process"
        file.close()
        raise BadInput(
            f"{output} is in use by {holder}; name a different --output-dir, or wait for it"
        ) from problem
    # some network file systems have no locks; the numbers of run directories are unique anyway
    except OSError as problem:
        host_log.log_ignored(problem)
        return file
    _delete_temporary_folders(output)  # no other process works here
    file.truncate(0)
    file.write(f"reprokit, process {os.getpid()}")
    file.flush()
    return file


def _delete_temporary_folders(output: Path) -> None:
    """Delete the temporary folders of a reprokit that was killed together with its guardians."""
    for run in output.glob("run-[0-9][0-9][0-9]*"):
        deletion.delete_path(run / RESULTS_FOLDER, inside=run)
        for depth in ("", "*/", "*/*/", "*/*/*/"):
            for package in run.glob(f"{depth}agent/_reprokit"):
                if package.resolve() != package:  # the target may have created a link
                    continue
                for name in TEMPORARY_FOLDERS:
                    deletion.delete_path(package.parent.with_name(name), inside=run)


def _next_run(output: Path) -> Path:
    number = 1
    while True:
        path = output / f"run-{number:03d}"
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
