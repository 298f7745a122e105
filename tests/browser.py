"""A real headless Chromium, installed by the tests' own set-up where they may."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def chromium() -> str:
    """The browser; installs Debian's packages as root, and skips the test with a reason
    otherwise.
    """
    with open(Path(tempfile.gettempdir()) / "reprokit-tests-chromium.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shutil.which("chromium") and os.geteuid() == 0 and shutil.which("apt-get"):
            subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
            packages = ["chromium", "chromium-driver"]
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
            subprocess.run(install, check=False, capture_output=True, env=environ)
    found = shutil.which("chromium")
    if not found:
        pytest.skip("Debian's chromium is not here and could not be installed")
    return found


def open_page(page: Path, *words: str) -> str:
    """Open a file and give what the browser wrote."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [chromium(), *FLAGS, f"--user-data-dir={profile}", *words, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    return done.stdout


def screenshot(page: Path, place: Path, width: int = 1180, height: int = 2400) -> bytes:
    """The page as a PNG."""
    open_page(page, f"--window-size={width},{height}", f"--screenshot={place}")
    return place.read_bytes()
