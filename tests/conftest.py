"""Run the command line as a user does: a child process, real torch, real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
CALL_TIMEOUT_S = 400


@dataclass
class Done:
    """How one call of reprokit ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def run_dir(self) -> Path:
        return Path(self.json["run_dir"])

    @property
    def kind(self) -> str:
        return str(self.json["verdict"]["kind"])


def reprokit_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "reprokit", *words]


def clean_environ(**more: str) -> dict[str, str]:
    """The environment without what would change a capture, plus ``more``."""
    drop = ("TORCH", "REPROKIT", "INDUCTOR")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    # tests that are about minimization ask for it
    return {**kept, "REPROKIT_MINIMIZE": "0", "REPROKIT_ABLATE": "0", "REPROKIT_COMPARE": "0", **more}


def reprokit(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Done:
    """Call reprokit and wait; the call itself must never print a traceback."""
    command = reprokit_command(*map(str, words))
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env or clean_environ(),
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
        **more,
    )
    if "--" not in words:
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def survivors(mark: str) -> list[psutil.Process]:
    """Living processes whose environment holds ``mark``."""
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and any(mark in value for value in process.environ().values()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(claim: Any, limit_s: float = 60) -> bool:
    """Poll until ``claim()`` holds; False when it never did."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if claim():
            return True
        time.sleep(0.05)
    return bool(claim())


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a Python file into the test's folder and give its path."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return make
