"""The run of a target has a compiler cache of its own, with the answers of the C++ compiler."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reprokit.host.system import compiler_cache
from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

LOOK = """
import os
folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
print("cache", folder)
for path, _, names in os.walk(folder):
    for name in names:
        print("file", os.path.relpath(os.path.join(path, name), folder))
        os.truncate(os.path.join(path, name), 0)
"""


@pytest.mark.real
def test_a_run_starts_with_the_answers_of_the_cpp_compiler(tmp_path: Path) -> None:
    """They are copies, so that the target cannot damage the kept ones. A folder that the user names
    gets none.
    """
    environ = {**clean_environ(), "XDG_CACHE_HOME": str(tmp_path / "home")}
    del environ["TORCHINDUCTOR_CACHE_DIR"]
    (tmp_path / "look.py").write_text(LOOK)
    command = ("--", sys.executable, tmp_path / "look.py")
    kept = tmp_path / "home" / "reprokit" / "inductor"
    kept /= compiler_cache.kept_cache_folder(sys.executable).name
    for name in ("ab/cab.so", "fxgraph/x/graph", "cd/ccd.main.so", "ef/cef.py"):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text("kept")
    words = ("capture", "--no-minimize", "--no-compare", "--output-dir", tmp_path / "out")
    done = reprokit(*words, *command, env=environ)
    assert done.status == 0, done.out + done.err
    rows = [row.split() for row in (done.out + done.err).splitlines()]
    assert [row[1] for row in rows if row[:1] == ["file"]] == ["ab/cab.so"]
    assert (kept / "ab/cab.so").read_text() == "kept"
    environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "own")
    done = reprokit(*words[:-1], tmp_path / "second", *command, env=environ)
    assert "cache " in done.out + done.err and "file " not in done.out + done.err
