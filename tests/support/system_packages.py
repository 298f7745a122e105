"""Programs of the system that tests use: install them if the option ``--install-system-deps`` is
given, or skip the test.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import requirements

OPTION = "--install-system-deps"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        action="store_true",
        help="as root, install the Debian packages (Slurm, Chromium) that tests need",
    )


def require_programs(
    config: pytest.Config, marker: str, programs: tuple[str, ...], packages: tuple[str, ...]
) -> None:
    """Skip the test if one of ``programs`` is missing. With ``--install-system-deps``, root installs
    ``packages`` with apt-get first. Fail a test that does not have ``marker``.
    """
    requirements.check_marker(marker)
    if config.getoption(OPTION) and os.geteuid() == 0 and shutil.which("apt-get"):
        with open(Path(tempfile.gettempdir()) / "reprokit-tests-apt.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _missing(programs):
                _install(packages)
    if missing := _missing(programs):
        pytest.skip(
            f"{', '.join(missing)} not installed: install {' and '.join(packages)}, or run pytest"
            f" as root with {OPTION}"
        )


def _missing(programs: tuple[str, ...]) -> list[str]:
    return [program for program in programs if not shutil.which(program)]


def _install(packages: tuple[str, ...]) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "-qq"], install):
        subprocess.run(command, check=False, capture_output=True, env=environ)
