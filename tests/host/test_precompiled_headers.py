"""Files that are shared between runs stay complete, even if their writer is killed."""

from __future__ import annotations

import fcntl
import getpass
import tempfile
from pathlib import Path

import pytest

from reprokit.host.system import compiler_cache
from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

HALF = b"gpcWrite" + b"\0" * 100
WHOLE = b"gpch+014" + b"\0" * 100


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create torch's folder of precompiled headers with the incomplete file of a killed g++ and a
    complete one.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"
    (folder / "locks").mkdir(parents=True)
    (folder / "half.h.gch").write_bytes(HALF)
    (folder / "empty.h.gch").write_bytes(b"")
    (folder / "whole.h.gch").write_bytes(WHOLE)
    (folder / "half.h").write_text("#include <header>\n")
    return folder


def test_incomplete_headers_are_removed_and_complete_ones_stay(headers: Path) -> None:
    """No other file in the folder is changed."""
    assert compiler_cache.delete_partial_headers() == 2
    assert {p.name for p in headers.iterdir()} == {"whole.h.gch", "half.h", "locks"}
    assert compiler_cache.delete_partial_headers() == 0


def test_a_header_that_is_being_written_stays(headers: Path) -> None:
    """A process holds torch's lock on the file."""
    with (headers / "locks" / "half.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert compiler_cache.delete_partial_headers() == 1
        assert (headers / "half.h.gch").exists()
    assert compiler_cache.delete_partial_headers() == 1


def test_a_missing_folder_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has not compiled anything yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiler_cache.delete_partial_headers() == 0


@pytest.mark.real
def test_a_capture_reports_and_removes_incomplete_headers(tmp_path: Path, headers: Path) -> None:
    """Incomplete files from before are reported, and those of a target that is killed at its
    deadline are removed too.
    """
    target = tmp_path / "target.py"
    target.write_text(
        f"import time, torch\ndef slow(gm, inputs):\n    open({str(headers / 'new.h.gch')!r},"
        f" 'wb').write({HALF!r})\n    time.sleep(600)\ndef make(): return {{'model': lambda x: x +"
        " 1, 'calls': [((torch.ones(2),), {})], 'compile': {'backend': slow}}\n"
    )
    environ = clean_environ(TMPDIR=str(tmp_path))
    done = reprokit(
        "capture",
        f"{target}:make",
        "--stall",
        "3",
        "--no-escalate",
        "--output-dir",
        tmp_path / "out",
        env=environ,
    )
    assert done.status == 1 and "incomplete precompiled header" in done.err, done.err
    assert [p.name for p in headers.glob("*.gch")] == ["whole.h.gch"]
