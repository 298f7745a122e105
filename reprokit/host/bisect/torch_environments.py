"""Interpreters with a torch that is asked for: one that is there, or an environment that is built
for it and kept.

A virtual environment holds its own path in many files, so it is built where it will stay, under a
lock, and it is there when its marker is: what a killed builder left has none, and is built again.
The installer inherits the lock, so that one that outlives its reprokit keeps the next builder out
for as long as it still writes.
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
from reprokit.host.system import deletion, files, guardian_client, interrupts
from reprokit.host.system.child_question import NoAnswer, ask_child

IMPORT_S = 180.0
"""To import torch for the first time, from a cold disk."""
ANSWER_S = 30.0
INSTALL_S = 1800.0
PIP = (22, 3)
"""The first pip that installs into another environment (``--python``)."""
WHICH_TORCH = "import torch; print(); print(torch.__version__)"
READY = "reprokit-ready.json"
TELLING_CHARS = 300

_OWN = re.compile(
    r"PYTHON(?!UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|WARNINGS)\w+|VIRTUAL_ENV\w*|CONDA_\w+"
)
"""Variables that say where this user's modules and environments are."""
_INSTALLERS = re.compile(r"(?:PIP|UV)_\w+")
_REACHES = re.compile(
    r"(?:PIP|UV)_\w*(?:INDEX|LINKS|CERT|PROXY|TIMEOUT|RETRIES|HOST|CACHE|KEYRING|NETRC|CONFIG_FILE|TLS|OFFLINE|TORCH_BACKEND)\w*"
)
"""What an installer is told of how to reach an index; all else that the user set is about another
environment.
"""


class CannotInstall(Exception):
    """This torch cannot be had or does not run here; the message is one line that says why."""


@dataclass(frozen=True)
class TorchEnvironment:
    """An interpreter and what it says of its torch."""

    torch: str
    python: str
    how: str
    """``installed``: it was there; ``built``: just now; ``cached``: earlier."""
    seconds: float


@dataclass(frozen=True)
class InstallOptions:
    """How an environment is built."""

    python: str | None = None
    """The interpreter that it stands on; reprokit's own where none is named."""
    installer: str = "auto"
    index_url: str = ""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    packages: tuple[str, ...] = ()
    """What is installed beside torch."""
    cache: Path | None = None
    timeout_s: float = INSTALL_S

    def where_from(self) -> list[str]:
        """What pip and uv alike are told of where packages come from."""
        words = ["--index-url", self.index_url] if self.index_url else []
        words += [word for place in self.find_links for word in ("--find-links", place)]
        return words + (["--no-index"] if self.no_index else [])


@contextlib.contextmanager
def without_user_environment() -> Iterator[None]:
    """Keep this user's PYTHONPATH and environments from the processes that are started inside."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if _OWN.fullmatch(name)}
    try:
        yield
    finally:
        os.environ.update(kept)


def version_of(text: str) -> Version:
    """Read a version; raises BadInput."""
    try:
        return Version(text)
    except InvalidVersion as problem:
        raise BadInput(
            f"{text!r} is no version; write it as 2.12.1, 2.13.0+cpu or 2.14.0.dev20261101"
        ) from problem


def torch_of(python: str) -> str:
    """The version of the torch that ``python`` imports; raises CannotInstall when it has none or
    does not run.
    """
    try:
        with interrupts.allowed():
            told = ask_child([python, "-c", WHICH_TORCH], IMPORT_S)
        return str(Version(told.strip().splitlines()[-1]))
    except NoAnswer as problem:
        why = str(problem).removeprefix(f"-c {WHICH_TORCH}: ")
        raise CannotInstall(f"{python} does not import torch: {why}") from problem
    except (InvalidVersion, IndexError) as problem:
        raise CannotInstall(f"{python} does not say which torch it has") from problem


def environment_of_version(
    version: str, options: InstallOptions, say: Callable[[str], None]
) -> TorchEnvironment:
    """An interpreter with torch ``version``, built where none is kept; raises CannotInstall, or
    BadInput for options.
    """
    began = time.monotonic()
    wanted, base = version_of(version), interpreter.check_interpreter(options.python)
    place = folder_of(wanted, base, options)
    python = str(place / "bin" / "python")
    with _held(place, say) as lock, interrupts.allowed():
        if torch := _kept(place):
            return TorchEnvironment(torch, python, "cached", time.monotonic() - began)
        try:
            _build(place, base, wanted, options, lock, say)
            with without_user_environment():
                torch = torch_of(python)
            if Version(torch).public != wanted.public:
                raise CannotInstall(
                    f"torch=={version} was installed, and what is imported is {torch}"
                )
            files.write_json(place / READY, {"torch": torch})
        except OSError as problem:
            raise CannotInstall(f"{place}: {problem.strerror or problem}") from problem
        finally:
            if not (place / READY).exists():
                with interrupts.blocked():
                    deletion.delete(place, inside=place.parent)
    return TorchEnvironment(torch, python, "built", time.monotonic() - began)


def folder_of(wanted: Version, base: str, options: InstallOptions) -> Path:
    """Where the environment is kept: what it is made of names it, not who built it."""
    plain = dataclasses.replace(
        options,
        python=os.path.realpath(base),
        installer="",
        cache=None,
        timeout_s=0.0,
        find_links=tuple(_absolute(place) for place in options.find_links),
    )
    reaches = {name: value for name, value in os.environ.items() if _REACHES.fullmatch(name)}
    told = json.dumps([str(wanted), dataclasses.asdict(plain), reaches], sort_keys=True)
    digest = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    cache = options.cache or Path(platformdirs.user_cache_dir("reprokit"))
    return Path(os.path.abspath(cache)) / "environments" / f"torch-{wanted}-{digest}"


def _absolute(place: str) -> str:
    return place if "://" in place else os.path.abspath(place)


def _kept(place: Path) -> str:
    """The torch of an environment that is ready and still runs; empty for any other."""
    try:
        told = json.loads(files.read_text(place / READY))["torch"]
        code = "import importlib.metadata; print(importlib.metadata.version('torch'))"
        ask_child([str(place / "bin" / "python"), "-I", "-c", code], ANSWER_S)
    except (
        ValueError,
        KeyError,
        TypeError,
        NoAnswer,
    ):  # the interpreter that it stands on may be gone
        return ""
    return str(told)


def _build(
    place: Path,
    base: str,
    wanted: Version,
    options: InstallOptions,
    lock: IO[bytes],
    say: Callable[[str], None],
) -> None:
    if wrong := [p for p in options.packages if p.startswith("-")]:
        raise BadInput(f"--with {wrong[0]}: name a package, such as numpy or triton==3.7.1")
    tool = _tool(base, options.installer)
    say(
        f"torch {wanted}: building an environment with"
        f" {Path(tool[0]).name if len(tool) == 1 else 'pip'}"
    )
    deletion.delete(place, inside=place.parent)
    python = str(place / "bin" / "python")
    # torch takes it for granted before Python 3.12, whose environments have it no more
    more = () if options.no_index else ("setuptools",)
    packages = [*options.where_from(), f"torch=={wanted}", *more, *options.packages]
    if len(tool) == 1:
        make = [*tool, "venv", "--no-project", "--python", base, str(place)]
        fill = [*tool, "pip", "install", "--python", python, *packages]
    else:
        make = [base, "-I", "-m", "venv", "--without-pip", str(place)]
        fill = [
            *tool,
            "--python",
            python,
            "install",
            "--no-input",
            "--progress-bar",
            "off",
            *packages,
        ]
    log = place.with_name(f"{place.name}.log")
    deletion.delete(log, inside=log.parent)
    end = time.monotonic() + options.timeout_s
    for command in (make, fill):
        if status := _run(command, log, lock, end):
            raise CannotInstall(
                telling_lines(files.read_text(log)) or f"{command[0]} ended with status {status}"
            )


def _tool(base: str, installer: str) -> list[str]:
    """uv, one word; or pip, in an interpreter that has one which can install into another
    environment.
    """
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
    if uv and installer != "pip":
        return [uv]
    if installer == "uv":
        raise BadInput(
            "--installer uv: there is no uv; install it (python -m pip install uv), or leave the"
            " option out"
        )
    return pip_of(base)


def pip_of(base: str) -> list[str]:
    """The command line of a pip that is new enough, of ``base`` or else of reprokit's own
    interpreter.
    """
    for python in (base, sys.executable):
        with contextlib.suppress(NoAnswer):
            found = re.match(
                r"pip (\d+)\.(\d+)", ask_child([python, "-I", "-m", "pip", "--version"], ANSWER_S)
            )
            if found and (int(found[1]), int(found[2])) >= PIP:
                return [python, "-I", "-m", "pip"]
    raise BadInput(
        f"neither {base} nor reprokit's own interpreter has a pip of {PIP[0]}.{PIP[1]} or newer;"
        " install uv"
    )


def _run(command: list[str], log: Path, lock: IO[bytes], end: float) -> int:
    """Run one step of an installer to its end or its deadline; nothing of it is left, also when we
    are killed.
    """
    run_id = uuid.uuid4().hex
    own = {name for name in os.environ if _OWN.fullmatch(name)}
    own |= {
        name for name in os.environ if _INSTALLERS.fullmatch(name) and not _REACHES.fullmatch(name)
    }
    environ = {name: value for name, value in os.environ.items() if name not in own}
    guardian = guardian_client.watch_run_id(run_id)
    try:
        with log.open("ab") as file:
            child = subprocess.Popen(
                command,
                env={**environ, run_names.RUN_ID_VARIABLE: run_id},
                cwd=log.parent,  # a pyproject.toml of the user's folder has no say
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
        try:
            while True:
                interrupts.raise_if_interrupted()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(0.2)
                if time.monotonic() > end:
                    raise CannotInstall("the installation was not done at its deadline (--timeout)")
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    finally:
        if guardian is not None:
            guardian.dismiss()


def telling_lines(text: str) -> str:
    """The line of an installer's output that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    because = [
        line.removeprefix("cause: ").lstrip("╰─▶ ")
        for line in lines
        if re.match(r"cause: |╰─▶ ", line)
    ]
    errors = [line for line in lines if re.match(r"(?i)error: (?!ResolutionImpossible)", line)]
    line = next(iter(because or errors[::-1] or lines[::-1]), "")
    return re.sub(r"(?i)^error: ", "", line)[:TELLING_CHARS]


@contextlib.contextmanager
def _held(place: Path, say: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Hold the lock of one environment; two builders wait for each other."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.with_name(f"{place.name}.lock").open("ab")
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise BadInput(
            f"cannot write below {place.parent}: {why}; name a writable --cache"
        ) from problem
    with file:
        is_told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_told:
                    say(f"another process builds {place.name}; waiting for it")
                is_told = True
            except OSError:  # some network file systems have no locks
                break
            with interrupts.allowed():
                interrupts.raise_if_interrupted()
                time.sleep(0.2)
        yield file
