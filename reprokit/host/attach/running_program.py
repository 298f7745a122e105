"""Describe a running process: its command line, folder, interpreter and environment."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from reprokit.core.redaction.command_words import visible_words
from reprokit.core.redaction.redactor import ALLOWED_VARIABLES, hide_secrets
from reprokit.core.redaction.rules import secret_names
from reprokit.host.system import host_log

INHERITED = frozenset({"PATH", "HOME", "PWD", "SHELL", "TERM", "LANG"})


@dataclass(frozen=True)
class RunningProgram:
    """A process, as proc(5) shows it."""

    pid: int
    argv: tuple[str, ...]
    """Its command line; empty for a process that has changed it, or that has ended."""
    cwd: str
    """Empty if this user may not read it."""
    python: str
    """The path of its interpreter; empty if this user may not read it."""
    variables: dict[str, str]
    """Its environment; empty if this user may not read it."""

    @property
    def visible_argv(self) -> list[str]:
        """Its command line without secrets."""
        return [hide_secrets(word) for word in visible_words(self.argv)]

    @property
    def command_again(self) -> str:
        """The command line that runs it again under ``reprokit capture``, without secrets."""
        kept = {
            name: value
            for name, value in sorted(self.variables.items())
            if ALLOWED_VARIABLES.fullmatch(name)
            and not secret_names.is_secret(name)
            and name not in INHERITED
            and os.environ.get(name) != value
            and hide_secrets(value) == value
        }
        parts = [f"{name}={shlex.quote(value)}" for name, value in kept.items()]
        command = shlex.join(["reprokit", "capture", "--", *self.visible_argv])
        folder = f"cd {shlex.quote(self.cwd)} && " if self.cwd else ""
        return folder + " ".join([*parts, command])


def describe_process(pid: int) -> RunningProgram:
    """Read the description of a process. What cannot be read is empty."""
    argv = tuple(_words(f"/proc/{pid}/cmdline"))
    variables = dict(word.split("=", 1) for word in _words(f"/proc/{pid}/environ") if "=" in word)
    cwd = _link(f"/proc/{pid}/cwd")
    return RunningProgram(pid, argv, cwd, _interpreter(pid, argv, cwd, variables), variables)


def why_not_run(program: RunningProgram) -> str:
    """Return why the interpreter of a process must not be run; empty if it may be.

    It is run with the rights of reprokit, so it must be the file that this user runs already.
    """
    pid = program.pid
    try:
        if psutil.Process(pid).uids().effective != os.geteuid():
            return f"process {pid} belongs to a different user, so its interpreter is not run"
        if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return f"process {pid} is in a container with other files"
        real, named = os.stat(f"/proc/{pid}/exe"), os.stat(program.python)
    except (OSError, psutil.Error) as problem:
        host_log.log_ignored(problem)
        return f"the interpreter of process {pid} is not there any more, or may not be read"
    if (real.st_dev, real.st_ino) != (named.st_dev, named.st_ino):
        return f"{program.python} is a different file than the one that process {pid} runs"
    return ""


def works_below(pid: int, folder: Path) -> bool:
    """Return whether ``folder`` is in the working directory of a process."""
    place = _link(f"/proc/{pid}/cwd")
    return bool(place) and (Path(place) == folder or Path(place) in folder.parents)


def _interpreter(pid: int, argv: tuple[str, ...], cwd: str, variables: dict[str, str]) -> str:
    """Return the interpreter as the process was started with it.

    ``/proc/PID/exe`` is the file behind all links, which does not know its virtual environment.
    """
    real = _link(f"/proc/{pid}/exe")
    if not real or not argv:
        return real
    named = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=variables.get("PATH")) or ""
    path = Path(cwd or "/", named)
    with host_log.suppress(OSError):
        if named and path.resolve() == Path(real).resolve():
            return str(path)
    return real


def _words(path: str) -> list[str]:
    with host_log.suppress(OSError):
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
        return text.removesuffix("\0").split("\0") if text else []
    return []


def _link(path: str) -> str:
    with host_log.suppress(OSError):
        return os.readlink(path).removesuffix(" (deleted)")
    return ""
