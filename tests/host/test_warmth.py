"""What is shared between runs stays whole, whoever is killed while it is written."""

from __future__ import annotations

import fcntl
import getpass
import tempfile
from pathlib import Path

import pytest

from reprokit.host.system import compiler_cache

from ..conftest import clean_environ, reprokit

HALF = b"gpcWrite" + b"\0" * 100
WHOLE = b"gpch+014" + b"\0" * 100


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Torch's folder of precompiled headers, with those of a killed g++ and of one that came to its
    end.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"
    (folder / "locks").mkdir(parents=True)
    (folder / "half.h.gch").write_bytes(HALF)
    (folder / "empty.h.gch").write_bytes(b"")
    (folder / "whole.h.gch").write_bytes(WHOLE)
    (folder / "half.h").write_text("#include <header>\n")
    return folder


def test_half_headers_go_and_whole_ones_stay(headers: Path) -> None:
    """Nothing else in the folder is touched."""
    assert compiler_cache.fix_headers() == 2
    assert {p.name for p in headers.iterdir()} == {"whole.h.gch", "half.h", "locks"}
    assert compiler_cache.fix_headers() == 0


def test_what_is_being_written_stays(headers: Path) -> None:
    """Somebody holds torch's lock on it."""
    with (headers / "locks" / "half.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert compiler_cache.fix_headers() == 1
        assert (headers / "half.h.gch").exists()
    assert compiler_cache.fix_headers() == 1


def test_no_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has compiled nothing yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert compiler_cache.fix_headers() == 0


@pytest.mark.slow
def test_a_capture_says_so_and_leaves_no_half_behind(tmp_path: Path, headers: Path) -> None:
    """One that lay there before is told; one that is there when a target is killed at its deadline
    goes too.
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
    assert done.status == 1 and "half a precompiled header" in done.err, done.err
    assert [p.name for p in headers.glob("*.gch")] == ["whole.h.gch"]
