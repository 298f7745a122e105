"""The console blocks of the README and of the pages show what the commands print."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.support import console_blocks
from tests.support.environments import ROOT
from tests.support.recordings import Recorder, pack_recording

BLOCKS = console_blocks.all_blocks()


def assert_shown(name: str, outputs: dict[tuple[str, str], str]) -> None:
    """Compare the blocks of a folder with the outputs of its commands."""
    for block in BLOCKS[name]:
        for command, lines in block.calls():
            output = outputs[name, command]
            assert console_blocks.is_shown_by(lines, output), (
                f"{block.document.relative_to(ROOT)}: {command} prints:\n{output}\npython -m"
                f" tests.support.console_blocks {name} rewrites the block"
            )


def test_the_readme_has_a_recipe_for_each_kind_of_failure() -> None:
    """A hang, an exception and a wrong result are captured by the blocks of the README."""
    blocks = console_blocks.find_blocks(ROOT / "README.md")
    assert [block.folder for block in blocks] == ["hang", "exception", "wrong"]
    assert all(lines for block in blocks for _, lines in block.calls())


IN_REAL: dict[str, Any] = {
    "suite": (),
    "hang": pytest.mark.real("it types the first command of the README, with the steps of a user"),
}
"""The marks of the folders whose commands are run as they are in each run of the tests."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=IN_REAL.get(name, pytest.mark.long))
        for name in sorted(set(BLOCKS) - {"wrong"})
    ],
)
def test_the_blocks_show_what_the_commands_print(name: str, tmp_path: Path) -> None:
    """Apart from numbers and left out lines, each line of a block is printed, in this order."""
    console_blocks.prepare_folder(tmp_path)
    run = functools.partial(console_blocks.run_command, REPROKIT_PROOFS="1")  # it is a number
    assert_shown(name, console_blocks.run_folder(BLOCKS[name], tmp_path, run))


@pytest.mark.parametrize(
    ("name", "sample", "words"),
    [
        ("exception", "exception_inductor.py", ()),
        ("wrong", "wrong_result.py", ("--budget", "100")),
    ],
)
def test_the_blocks_show_a_recorded_capture(
    name: str, sample: str, words: tuple[str, ...], recorded: Recorder, tmp_path: Path
) -> None:
    """The block of a capture shows what `reprokit pack` prints of it, and the other blocks of its
    folder show what the commands print that read the pack.
    """
    steps = ("COMPARE", "MINIMIZE", "ABLATE", "PROOFS")
    variables = {f"REPROKIT_{step}": "1" for step in steps}
    done = recorded(f"{ROOT}/samples/{sample}:make", *words, **variables)

    def run(command: str, folder: Path) -> str:
        if "reprokit capture" not in command:
            return console_blocks.run_command(command, folder)
        assert command == f"reprokit capture samples/{sample}:make --output-dir out"
        again = pack_recording(done.run_dir, cwd=tmp_path, **variables)
        # the recording was made of the samples of the repository
        output = again.out.replace(f"{ROOT}/samples", "samples")
        return console_blocks.show_as_home(output, folder)

    assert_shown(name, console_blocks.run_folder(BLOCKS[name], tmp_path, run))
