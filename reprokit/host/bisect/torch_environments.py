"""Provide virtual environments with a given version of torch, and keep them.

A virtual environment has its own path in many files, so it is built in its final folder, under a
lock. It is ready when its marker file is there: if a builder was killed, there is no marker, and it
is built again. The installer inherits the lock, so that an installer that outlives its reprokit
blocks the next builder while it still writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs
from packaging.version import InvalidVersion, Version

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.request import interpreter
from reprokit.host.system import deletion, files, guardian_client, host_log, interrupts
from reprokit.host.system.child_commands import CommandFailed, run_for_output

IMPORT_TIMEOUT_S = 180.0
"""Limit for the first import of torch, from a cold disk."""
ANSWER_TIMEOUT_S = 30.0
INSTALL_TIMEOUT_S = 1800.0
MIN_PIP = (22, 3)
"""The first pip that installs into another environment (``--python``)."""
WHICH_TORCH = "import torch; print(); print(torch.__version__)"
READY_FILE = "reprokit-ready.json"
MAX_ERROR_CHARS = 300

_USER_VARIABLES = re.compile(
    r"PYTHON(?!UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|WARNINGS)\w+|VIRTUAL_ENV\w*|CONDA_\w+"
)
"""Variables with the folders of this user's modules and environments."""
_INSTALLERS = re.compile(r"(?:PIP|UV)_\w+")
_INDEX_VARIABLES = re.compile(
    r"(?:PIP|UV)_\w*(?:INDEX|LINKS|CERT|PROXY|TIMEOUT|RETRIES|HOST|CACHE|KEYRING|NETRC|CONFIG_FILE|TLS|OFFLINE|TORCH_BACKEND)\w*"
)
"""Variables that configure how an installer reaches an index; its other variables are dropped."""


class CannotInstall(Exception):
    """This torch cannot be installed or does not run here; the message says why in one line."""


@dataclass(frozen=True)
class TorchEnvironment:
    """An interpreter and its version of torch."""

    torch: str
    python: str
    how: str
    """``installed`` by the user; ``built`` now; ``cached``, that is, built earlier."""
    seconds: float


@dataclass(frozen=True)
class InstallOptions:
    """How an environment is built."""

    python: str | None = None
    """The interpreter that builds it; reprokit's own where none is named."""
    installer: str = "auto"
    index_url: str = ""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    packages: tuple[str, ...] = ()
    """Packages that are installed with torch."""
    cache: Path | None = None
    timeout_s: float = INSTALL_TIMEOUT_S

    def index_options(self) -> list[str]:
        """Return the options of pip and of uv that name the sources of packages."""
        words = ["--index-url", self.index_url] if self.index_url else []
        words += [word for link in self.find_links for word in ("--find-links", link)]
        return words + (["--no-index"] if self.no_index else [])


@contextlib.contextmanager
def without_user_environment() -> Iterator[None]:
    """Remove this user's PYTHONPATH and environments from the variables of child processes."""
    kept = {
        name: os.environ.pop(name) for name in list(os.environ) if _USER_VARIABLES.fullmatch(name)
    }
    try:
        yield
    finally:
        os.environ.update(kept)


def parse_version(text: str) -> Version:
    """Parse a version of the command line.

    Raises:
        BadInput: the text is not a version.
    """
    try:
        return Version(text)
    except InvalidVersion as problem:
        raise BadInput(
            f"{text!r} is not a version; write it as 2.12.1, 2.13.0+cpu or 2.14.0.dev20261101"
        ) from problem


def imported_torch_version(python: str) -> str:
    """Return the version of the torch that ``python`` imports.

    Raises:
        CannotInstall: it has no torch, or does not run.
    """
    try:
        with interrupts.allowed():
            output = run_for_output([python, "-c", WHICH_TORCH], IMPORT_TIMEOUT_S)
        return str(Version(output.strip().splitlines()[-1]))
    except CommandFailed as problem:
        why = str(problem).removeprefix(f"-c {WHICH_TORCH}: ")
        raise CannotInstall(f"{python} does not import torch: {why}") from problem
    except (InvalidVersion, IndexError) as problem:
        raise CannotInstall(f"{python} does not report the version of its torch") from problem


def obtain_environment(
    version: str, options: InstallOptions, say: Callable[[str], None]
) -> TorchEnvironment:
    """Return an environment with torch ``version``; build it where none is kept.

    Raises:
        CannotInstall: the version cannot be installed, or does not run.
        BadInput: an option cannot be used.
    """
    began = time.monotonic()
    wanted, base = parse_version(version), interpreter.check_interpreter(options.python)
    folder = environment_folder(wanted, base, options)
    python = str(folder / "bin" / "python")
    with _locked(folder, say) as lock, interrupts.allowed():
        if torch := _ready_torch(folder):
            return TorchEnvironment(torch, python, "cached", time.monotonic() - began)
        try:
            _build(folder, base, wanted, options, lock, say)
            with without_user_environment():
                torch = imported_torch_version(python)
            if Version(torch).public != wanted.public:
                raise CannotInstall(
                    f"torch=={version} was installed, but the environment imports {torch}"
                )
            files.write_json(folder / READY_FILE, {"torch": torch})
        except OSError as problem:
            raise CannotInstall(f"{folder}: {problem.strerror or problem}") from problem
        finally:
            if not (folder / READY_FILE).exists():
                with interrupts.blocked():
                    deletion.delete_path(folder, inside=folder.parent)
    return TorchEnvironment(torch, python, "built", time.monotonic() - began)


def environment_folder(wanted: Version, base: str, options: InstallOptions) -> Path:
    """Return the folder of an environment; its name depends on the content, not on the installer."""
    plain = dataclasses.replace(
        options,
        python=os.path.realpath(base),
        installer="",
        cache=None,
        timeout_s=0.0,
        find_links=tuple(_absolute(link) for link in options.find_links),
    )
    reaches = {
        name: value for name, value in os.environ.items() if _INDEX_VARIABLES.fullmatch(name)
    }
    parts = json.dumps([str(wanted), dataclasses.asdict(plain), reaches], sort_keys=True)
    digest = hashlib.sha256(parts.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    cache = options.cache or Path(platformdirs.user_cache_dir("reprokit"))
    return Path(os.path.abspath(cache)) / "environments" / f"torch-{wanted}-{digest}"


def _absolute(folder: str) -> str:
    return folder if "://" in folder else os.path.abspath(folder)


def _ready_torch(folder: Path) -> str:
    """Return the torch of an environment that is ready and still runs; empty for any other."""
    try:
        torch = json.loads(files.read_text(folder / READY_FILE))["torch"]
        code = "import importlib.metadata; print(importlib.metadata.version('torch'))"
        run_for_output([str(folder / "bin" / "python"), "-I", "-c", code], ANSWER_TIMEOUT_S)
    except (
        ValueError,
        KeyError,
        TypeError,
        CommandFailed,
    ) as problem:
        # the interpreter that built it may be gone
        host_log.log_ignored(problem)
        return ""
    return str(torch)


def _build(
    folder: Path,
    base: str,
    wanted: Version,
    options: InstallOptions,
    lock: IO[bytes],
    say: Callable[[str], None],
) -> None:
    if wrong := [p for p in options.packages if p.startswith("-")]:
        raise BadInput(f"--with {wrong[0]}: name a package, such as numpy or triton==3.7.1")
    tool = _installer_command(base, options.installer)
    say(
        f"torch {wanted}: building an environment with"
        f" {Path(tool[0]).name if len(tool) == 1 else 'pip'}"
    )
    deletion.delete_path(folder, inside=folder.parent)
    python = str(folder / "bin" / "python")
    # torch needs it without declaring it, and environments of Python 3.12 and newer lack it
    more = () if options.no_index else ("setuptools",)
    packages = [*options.index_options(), f"torch=={wanted}", *more, *options.packages]
    # Python compiles what it imports, which is a quarter of torch, unless it may write nothing
    if len(tool) == 1:
        make = [*tool, "venv", "--no-project", "--python", base, str(folder)]
        compiles = ("--compile-bytecode",) if sys.dont_write_bytecode else ()
        fill = [*tool, "pip", "install", "--python", python, *compiles, *packages]
    else:
        make = [base, "-I", "-m", "venv", "--without-pip", str(folder)]
        fill = [
            *tool,
            "--python",
            python,
            "install",
            "--no-input",
            *(() if sys.dont_write_bytecode else ("--no-compile",)),
            "--progress-bar",
            "off",
            *packages,
        ]
    log = folder.with_name(f"{folder.name}.log")
    deletion.delete_path(log, inside=log.parent)
    end = time.monotonic() + options.timeout_s
    for command in (make, fill):
        if status := _run(command, log, lock, end):
            raise CannotInstall(
                main_error_line(files.read_text(log)) or f"{command[0]} ended with status {status}"
            )


def _installer_command(base: str, installer: str) -> list[str]:
    """Return the command of uv, which is one word, or of a pip that can install elsewhere.

    Raises:
        BadInput: there is no such program.
    """
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
    if uv and installer != "pip":
        return [uv]
    if installer == "uv":
        raise BadInput(
            "--installer uv: there is no uv; install it (python -m pip install uv), or omit the"
            " option"
        )
    return pip_command(base)


def pip_command(base: str) -> list[str]:
    """Return the command of a pip that is new enough, of ``base`` or of reprokit's interpreter.

    Raises:
        BadInput: neither has one.
    """
    for python in (base, sys.executable):
        with host_log.suppress(CommandFailed):
            match = re.match(
                r"pip (\d+)\.(\d+)",
                run_for_output([python, "-I", "-m", "pip", "--version"], ANSWER_TIMEOUT_S),
            )
            if match and (int(match[1]), int(match[2])) >= MIN_PIP:
                return [python, "-I", "-m", "pip"]
    raise BadInput(
        f"neither {base} nor reprokit's own interpreter has a pip of {MIN_PIP[0]}.{MIN_PIP[1]} or newer;"
        " install uv"
    )


def _run(command: list[str], log: Path, lock: IO[bytes], end: float) -> int:
    """Run one command of an installer until its end or its deadline, and return its status.

    No process of it is left, also when reprokit is killed.

    Raises:
        CannotInstall: the deadline passed.
    """
    run_id = uuid.uuid4().hex
    own = {name for name in os.environ if _USER_VARIABLES.fullmatch(name)}
    own |= {
        name
        for name in os.environ
        if _INSTALLERS.fullmatch(name) and not _INDEX_VARIABLES.fullmatch(name)
    }
    environ = {name: value for name, value in os.environ.items() if name not in own}
    guardian = guardian_client.watch_run_id(run_id)
    try:
        with log.open("ab") as file:
            child = subprocess.Popen(
                command,
                env={**environ, run_names.RUN_ID_VARIABLE: run_id},
                cwd=log.parent,  # not the user's folder, which may have a pyproject.toml
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
        try:
            while True:
                interrupts.raise_if_interrupted()
                with host_log.suppress(subprocess.TimeoutExpired):
                    return child.wait(0.2)
                if time.monotonic() > end:
                    raise CannotInstall("the installation reached its deadline (--timeout)")
        finally:
            with host_log.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    finally:
        if guardian is not None:
            guardian.dismiss()


def main_error_line(text: str) -> str:
    """Return the line of an installer's output with the cause of its failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    because = [
        line.removeprefix("cause: ").lstrip("╰─▶ ")
        for line in lines
        if re.match(r"cause: |╰─▶ ", line)
    ]
    errors = [line for line in lines if re.match(r"(?i)error: (?!ResolutionImpossible)", line)]
    line = next(iter(because or errors[::-1] or lines[::-1]), "")
    return re.sub(r"(?i)^error: ", "", line)[:MAX_ERROR_CHARS]


@contextlib.contextmanager
def _locked(folder: Path, say: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Hold the lock of one environment; a second builder waits for the first.

    Raises:
        BadInput: the cache is not writable.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.with_name(f"{folder.name}.lock").open("ab")
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise BadInput(
            f"cannot write below {folder.parent}: {why}; name a writable --cache"
        ) from problem
    with file:
        is_announced = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_announced:
                    say(f"another process builds {folder.name}; waiting for it")
                is_announced = True
            except OSError as problem:  # some network file systems have no locks
                host_log.log_ignored(problem)
                break
            with interrupts.allowed():
                interrupts.raise_if_interrupted()
                time.sleep(0.2)
        yield file
