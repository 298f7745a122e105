"""Open pages in a real headless Chromium."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.system_packages import require_programs

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


@dataclass(frozen=True)
class Browser:
    """A headless Chromium."""

    program: str

    def open_page(self, page: Path, *words: str) -> str:
        """Open a file and return the standard output of the browser."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            done = subprocess.run(
                [self.program, *FLAGS, f"--user-data-dir={profile}", *words, page.as_uri()],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        return done.stdout

    def screenshot(self, page: Path, png: Path, width: int = 1180, height: int = 2400) -> bytes:
        """Return the page as a PNG, which is also written to ``png``."""
        self.open_page(page, f"--window-size={width},{height}", f"--screenshot={png}")
        return png.read_bytes()


def find_browser(config: pytest.Config) -> Browser:
    """Return the installed Chromium, or skip the test."""
    require_programs(config, "browser", ("chromium",), ("chromium", "chromium-driver"))
    return Browser("chromium")
