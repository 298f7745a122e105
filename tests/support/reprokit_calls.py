"""Call the command line as a user does: a child process, real torch, real files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pytest

from tests.support import json_documents, warm_processes
from tests.support.environments import clean_environ

CALL_TIMEOUT_S = 900
"""It only ends a call that hangs; a slow machine needs half of it for one reduction of C++ code."""


@dataclass
class CallResult:
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


def reprokit(
    *words: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout_s: float = CALL_TIMEOUT_S,
    **more: Any,
) -> CallResult:
    """Call reprokit and wait for it. The call itself must never print a traceback.

    With ``more`` arguments of ``subprocess.run`` it is a new process, otherwise a child of a server.
    """
    row = [*map(str, words)]
    env = env or clean_environ()
    if more:
        done = subprocess.run(
            reprokit_command(*row),
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            **more,
        )
    else:
        done = warm_processes.run_command_line(row, cwd, env, timeout_s)
    return check_answer(row, done)


def check_answer(words: list[str], done: subprocess.CompletedProcess[str]) -> CallResult:
    """Check what is true of each call, and return how it ended."""
    assert_repro_is_proven(done.stdout)
    json_documents.assert_documented(words, done.stdout)
    if "--" not in words:
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return CallResult(done.returncode, done.stdout, done.stderr)


def assert_repro_is_proven(out: str) -> None:
    """Check the pack that a JSON answer names: it has no repro.py, or a proof with hits of exactly
    this repro.py.
    """
    try:
        answer = json.loads(out)
    except ValueError:
        return
    pack = answer.get("pack") if isinstance(answer, dict) else None
    if not isinstance(pack, str) or not tarfile.is_tarfile(pack):
        return
    with tarfile.open(pack) as archive:
        members = {
            name: archive.extractfile(name)
            for name in archive.getnames()
            if name in ("repro.py", "proof.json")
        }
        files = {name: file.read() for name, file in members.items() if file is not None}
    if "repro.py" not in files:
        assert not files and not answer.get("repro"), answer
        return
    proof = json.loads(files["proof.json"])
    assert proof["answer"] == "same" and proof["hits"] >= 1, proof
    assert proof["digest"] == hashlib.sha256(files["repro.py"]).hexdigest(), proof


def shared_call(
    factory: pytest.TempPathFactory, name: str, call: Callable[[Path], CallResult]
) -> CallResult:
    """Return the result of ``call`` in a folder of the session. The first worker that needs it
    makes the call.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    kept = folder / "result.json"
    with filelock.FileLock(f"{folder}.lock"):
        if not kept.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a call that failed
            folder.mkdir()
            kept.write_text(json.dumps(dataclasses.asdict(call(folder))))
        return CallResult(**json.loads(kept.read_text()))
