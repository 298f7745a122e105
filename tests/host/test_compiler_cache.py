"""A cache folder has a path that every compiler can use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.host.system import compiler_cache
from tests.support.environments import ROOT
from tests.support.processes import wait_until


def test_a_plain_path_stays() -> None:
    folder = Path("/var/tmp/plain-1.2+3")
    assert compiler_cache.plain_path(folder) == folder


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)"], ids=["ends", "is killed"])
def test_a_special_path_gets_a_link_until_the_process_ends(end: str, tmp_path: Path) -> None:
    """The special part of the path is replaced once, and the folder itself stays."""
    folder = tmp_path / "it's a cäche" / "run-001"
    folder.mkdir(parents=True)
    program = (
        "import os, pathlib, sys\n"
        "from reprokit.host.system.compiler_cache import plain_path\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "path = plain_path(folder / 'cache')\n"
        "path.mkdir()\n"
        "(path / 'entry').write_text('kept')\n"
        "assert plain_path(folder).parent == path.parent.parent\n"
        "print(path, flush=True)\n"
        f"{end}\n"
    )
    done = subprocess.run([sys.executable, "-c", program, folder], cwd=ROOT, capture_output=True)
    assert done.returncode == (-9 if end else 0), done.stderr
    path = Path(os.fsdecode(done.stdout.strip()))
    assert not compiler_cache.QUOTED_CHARACTERS.search(str(path).replace("/", ""))
    assert path.parts[-2:] == ("run-001", "cache")
    assert (folder / "cache" / "entry").read_text() == "kept"
    assert wait_until(lambda: not path.parents[2].exists())
    assert not path.exists()


def test_without_a_folder_for_links_the_path_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_cache.tempfile, "gettempdir", lambda: str(tmp_path / "no such"))
    monkeypatch.setattr(compiler_cache, "FOLDERS_OF_LINKS", ("/proc/no-such",))
    folder = tmp_path / "with a space"
    assert compiler_cache.plain_path(folder) == folder


def test_the_cache_of_a_warm_up_is_kept_once(tmp_path: Path) -> None:
    """Only what the C++ compiler read and wrote is kept, and a later warm-up does not change it."""
    warm, kept = tmp_path / "warm", tmp_path / "kept" / "digest"
    for name in ("ab/kernel.so", "ab/kernel.cpp", "ab/graph.py", "fxgraph/entry", "locks/lock"):
        (warm / name).parent.mkdir(parents=True, exist_ok=True)
        (warm / name).write_text("first")
    compiler_cache.keep_cache(warm, kept)
    files = {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()}
    assert files == {"ab/kernel.so", "ab/kernel.cpp"}
    (warm / "ab" / "kernel.so").write_text("second")
    compiler_cache.keep_cache(warm, kept)
    assert (kept / "ab" / "kernel.so").read_text() == "first"
    assert [path.name for path in kept.parent.iterdir()] == ["digest"]


@pytest.mark.parametrize("problem", ["no library", "full disk"])
def test_an_incomplete_cache_is_not_kept(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm-up that built nothing leaves no cache, nor does a copy that failed."""
    warm, kept = tmp_path / "warm", tmp_path / "kept" / "digest"
    warm.mkdir()
    (warm / "kernel.cpp").write_text("text")

    def fill_disk(source: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "kernel.cpp").write_text("te")
        raise OSError(28, "No space left on device")

    if problem == "full disk":
        (warm / "kernel.so").write_text("code")
        monkeypatch.setattr(compiler_cache, "copy_cache", fill_disk)
    compiler_cache.keep_cache(warm, kept)
    assert not list(kept.parent.glob("*"))
