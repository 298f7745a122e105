"""Run the command line as a user does: a child process, real torch, real files."""

from __future__ import annotations

import atexit
import compileall
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import psutil
import pytest

from reprokit.host.system import compiler_cache

ROOT = Path(__file__).resolve().parents[1]
CALL_TIMEOUT_S = 400
SITE = ROOT / "tests" / "site"
"""Interpreters that find it on PYTHONPATH end quickly."""

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
)

if "PYTEST_XDIST_WORKER" not in os.environ and sys.dont_write_bytecode:
    # else each of some thousand starts would compile all rooms again
    compileall.compile_dir(ROOT / "reprokit", quiet=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests stand first in the share of each worker: what is left at the end, for whoever has
    nothing to do, is quick.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    shares = ((rows, number) for number in range(workers) for rows in (slow, quick))
    items[:] = [
        row
        for rows, n in shares
        for row in rows[len(rows) * n // workers : len(rows) * (n + 1) // workers]
    ]


def hear_signals() -> None:
    """Undo in a child (``preexec_fn``) what a shell did to us: background jobs ignore SIGINT, and
    those of nohup SIGHUP.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


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


_WARM_UP = "import torch; torch.compile(lambda x: x.sin() + 1)(torch.ones(4))"


@functools.cache
def _place() -> Path:
    """A folder that is gone after the tests, with what Inductor asks the C++ compiler before it
    compiles anything.
    """
    place = Path(tempfile.mkdtemp(prefix="reprokit-tests-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    kept = compiler_cache.kept_cache(sys.executable)
    with filelock.FileLock(Path(tempfile.gettempdir()) / "reprokit-tests.lock"):
        if not kept.exists():
            environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(place / "first")}
            subprocess.run([sys.executable, "-c", _WARM_UP], env=environ, check=True)
            compiler_cache.keep_cache(place / "first", kept)
    compiler_cache.copy_cache(kept, place / "warm")
    return place


def warm_cache() -> Path:
    """A cache folder of Inductor's for one call, without any graph: so no test pays ten seconds for
    the compiler's start.
    """
    place = Path(tempfile.mkdtemp(dir=_place()))
    compiler_cache.link_cache(_place() / "warm", place)
    return place


def clean_environ(**more: str) -> dict[str, str]:
    """The environment without what would change a capture, plus ``more``."""
    drop = ("TORCH", "REPROKIT", "INDUCTOR")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    # tests that are about minimization ask for it
    plain = {
        "REPROKIT_MINIMIZE": "0",
        "REPROKIT_ABLATE": "0",
        "REPROKIT_COMPARE": "0",
        "REPROKIT_PROOFS": "1",
    }
    threads = {
        "OMP_NUM_THREADS": "1"
    }  # those that wait for work spin on the processors of other tests
    return {**kept, **plain, **threads, "TORCHINDUCTOR_CACHE_DIR": str(warm_cache()), **more}


def reprokit(
    *words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any
) -> Done:
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
    assert_proved(done.stdout)
    if "--" not in words:
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def assert_proved(out: str) -> None:
    """The pack that a JSON answer names has no repro.py, or one that its proof is of: of this text,
    with hits.
    """
    try:
        told = json.loads(out)
    except ValueError:
        return
    place = told.get("pack") if isinstance(told, dict) else None
    if not isinstance(place, str) or not tarfile.is_tarfile(place):
        return
    with tarfile.open(place) as packed:
        held = {
            name: packed.extractfile(name)
            for name in packed.getnames()
            if name in ("repro.py", "proof.json")
        }
        files = {name: file.read() for name, file in held.items() if file is not None}
    if "repro.py" not in files:
        assert not files and not told.get("repro"), told
        return
    proof = json.loads(files["proof.json"])
    assert proof["answer"] == "same" and proof["hits"] >= 1, proof
    assert proof["digest"] == hashlib.sha256(files["repro.py"]).hexdigest(), proof


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Done]) -> Done:
    """What ``make`` gives in a folder, made by the first worker that wants it."""
    place = factory.getbasetemp() / name
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = factory.getbasetemp().parent / name
    kept = place / "done.json"
    with filelock.FileLock(f"{place}.lock"):
        if not kept.exists():
            place.mkdir()
            kept.write_text(json.dumps(dataclasses.asdict(make(place))))
        return Done(**json.loads(kept.read_text()))


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


def stragglers(mark: str) -> list[psutil.Process]:
    """Survivors that are still there after half a minute; what a target sleeps is longer."""
    wait_until(lambda: not survivors(mark), 30)
    return survivors(mark)


def wait_until(claim: Any, limit_s: float = 180) -> bool:
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
