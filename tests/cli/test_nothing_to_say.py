"""A run without a failure that torch took part in ends in at most three lines, without a pack."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import clean_environ
from tests.support.processes import restore_signals, wait_until
from tests.support.reprokit_calls import reprokit, reprokit_command

MOST_LINES = 3


def assert_brief(rows: list[str], folder: Path, *words: str) -> None:
    """Check that the lines are few and have the words, and that there is no pack."""
    assert len(rows) <= MOST_LINES and all(len(row) <= 100 for row in rows), rows
    for word in words:
        assert word in "\n".join(rows), rows
    assert not [*folder.rglob("*.tar.gz")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nofile.py"], "there is no file nofile.py; check the path"),
        (["-u", "-X", "dev", "tran.py", "--steps", "1"], "no file tran.py; did you mean train.py?"),
    ],
)
def test_a_file_that_does_not_exist(words: list[str], says: str, tmp_path: Path) -> None:
    """One line names it, before anything runs."""
    (tmp_path / "train.py").write_text("print(1)\n")
    done = reprokit("capture", "--output-dir", "out", "--", sys.executable, *words, cwd=tmp_path)
    assert done.status == 2 and says in done.err and done.err.count("\n") == 1, done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words", [["train.py"], ["-c", "print(1)"], ["-m", "this"], ["-", "x"], ["-Wd", "-im", "this"]]
)
def test_a_program_that_exists_runs(words: list[str], tmp_path: Path) -> None:
    """A module and a text are no files, and neither is the value of an option."""
    (tmp_path / "train.py").write_text("print(1)\n")
    done = reprokit("capture", "--output-dir", "out", "--", sys.executable, *words, cwd=tmp_path)
    assert done.status == 0, done.out + done.err


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ([sys.executable], "torch was not seen; python -I, -E or -S and a cleared environment"),
        ([sys.executable, "-I"], "torch was not seen; leave out `-I`"),
        ([sys.executable, "-sE"], "torch was not seen; leave out `-sE`"),
        (["env", "-i", sys.executable], "torch was not seen; leave out `-i` of env"),
    ],
)
def test_torch_was_never_imported(before: list[str], says: str, tmp_path: Path) -> None:
    """The reason is named if the command has one."""
    words = ("--output-dir", "out", "--", *before, "-c", "print(5)")
    done = reprokit("capture", *words, cwd=tmp_path)
    first, *rows = done.out.splitlines()
    assert (done.status, first) == (0, "5")
    assert_brief(rows, tmp_path, "ok: The target finished, and nothing in it was compiled.", says)


@pytest.mark.real("an interpreter tries to import torch, which quick tests forbid")
def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    """It is named, with what to do."""
    (tmp_path / "train.py").write_text("import torch\n")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=tmp_path, check=True
    )
    words = ("--output-dir", "out", "--", "bare/bin/python", "train.py")
    done = reprokit("capture", *words, cwd=tmp_path)
    assert done.status == 1 and "ModuleNotFoundError" in done.err
    says = ("No module named 'torch'", "name an interpreter that has torch")
    assert_brief(done.out.splitlines(), tmp_path, *says)


def test_a_program_that_ends_early(tmp_path: Path) -> None:
    """Its exit status is named, and its own message is above."""
    words = ("--output-dir", "out", "--", sys.executable, "-m", "no_such_module_here")
    done = reprokit("capture", *words, cwd=tmp_path)
    assert done.status == 3 and "No module named no_such_module_here" in done.err
    assert_brief(done.out.splitlines(), tmp_path, "exit status 1", "torch was not seen")


def test_ctrl_c_before_anything_failed(tmp_path: Path) -> None:
    """The run is named as interrupted; ``reprokit pack`` still packs it."""
    program = "import pathlib, time; pathlib.Path('began').touch(); time.sleep(600)"
    child = subprocess.Popen(
        reprokit_command("capture", "--output-dir", "out", "--", sys.executable, "-c", program),
        cwd=tmp_path,
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=restore_signals,
    )
    assert wait_until((tmp_path / "began").exists)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 130
    assert_brief(out.splitlines(), tmp_path, "unknown: The run was interrupted after")
    assert reprokit("pack", tmp_path / "out" / "run-001").status == 130
    assert [*tmp_path.rglob("*.tar.gz")]
