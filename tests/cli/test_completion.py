"""What the shell offers after the TAB key, asked as the shell asks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.core.shared.simulation import GPUS
from reprokit.core.shared.zoo import ZOO
from tests.support.environments import clean_environ

ASK = "import sys; sys.argv[0] = 'reprokit'; from reprokit.cli.main import main; main()"
"""The program that pip installs as ``reprokit``."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture, and with other files."""
    place = tmp_path_factory.mktemp("work")
    (place / "reprokit-out" / "train-1" / "run-001").mkdir(parents=True)
    (place / "reprokit-out" / "train-1" / "reprokit-train.tar.gz").touch()
    (place / "sent.tar.gz").touch()
    (place / "model.py").touch()
    (place / "papers").mkdir()
    (place / "reprokit.toml").write_text("this is no TOML, and TAB must work")
    return place


def complete(line: str, folder: Path) -> list[tuple[str, str]]:
    """Return the kinds and words that reprokit offers bash at the end of a line."""
    place = len(line.split(" ")) - 1
    environ = clean_environ(
        _REPROKIT_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(place)
    )
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    rows = [row.partition(",") for row in done.stdout.splitlines() if row]
    return [(kind, word) for kind, _, word in rows]


PACKS = ["reprokit-out/train-1/reprokit-train.tar.gz", "sent.tar.gz"]
FOLDERS = ["papers/", "reprokit-out/"]
LINES = {
    "reprokit cap": ["capture"],
    "reprokit nightly pru": ["prune"],
    "reprokit capture --compare-s": ["--compare-speed", "--compare-simulated"],
    "reprokit capture --color a": ["auto", "always"],
    "reprokit capture --gpu ": [*GPUS],
    "reprokit capture --model llama-": [name for name in ZOO if name.startswith("llama-")],
    "reprokit capture ": [*ZOO],
    "reprokit ablate ": [*ZOO, *PACKS, *FOLDERS],
    "reprokit show ": [*PACKS, *FOLDERS],
    "reprokit check x.py --same-as sen": ["sent.tar.gz"],
    "reprokit replay reprokit-out/train-1/rep": PACKS[:1],
    "reprokit pack ": ["reprokit-out/train-1/run-001", *FOLDERS],
}


@pytest.mark.parametrize("line", LINES)
def test_the_words_that_are_possible(line: str, folder: Path) -> None:
    """Commands, options, choices, models, GPUs, packs, and run directories."""
    assert complete(line, folder) == [("plain", word) for word in LINES[line]]


@pytest.mark.parametrize(
    "line", ["reprokit capture mod", "reprokit show pap", "reprokit models --python /usr/bin/pyth"]
)
def test_the_shell_completes_other_files_itself(line: str, folder: Path) -> None:
    """The program of a target, a folder on the way to a pack, and an interpreter."""
    assert complete(line, folder) == [("file", line.rpartition(" ")[2])]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_takes_the_function(tmp_path: Path) -> None:
    """The line of docs/reference/configuration.md makes a function that bash calls."""
    program = tmp_path / "bin" / "reprokit"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{ASK}\n")
    program.chmod(0o755)
    script = (
        'PATH="$PWD/bin:$PATH"; eval "$(_REPROKIT_COMPLETE=bash_source reprokit)"\n'
        "complete -p reprokit\nCOMP_WORDS=(reprokit capture --gpu h2); COMP_CWORD=3\n"
        '_reprokit_completion reprokit; echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=clean_environ(), capture_output=True, text=True
    )
    described, offered = done.stdout.splitlines()
    assert described.endswith(" -F _reprokit_completion reprokit"), done.stderr
    assert offered == "h200"
