"""The console blocks of the README and of the pages show what the commands print."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.support import console_blocks
from tests.support.environments import ROOT
from tests.support.reprokit_calls import CallResult

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("name", sorted(set(BLOCKS) - {"wrong"}))
def test_the_blocks_show_what_the_commands_print(name: str, tmp_path: Path) -> None:
    """Apart from numbers and left out lines, each line of a block is printed, in this order."""
    console_blocks.prepare_folder(tmp_path)
    run = functools.partial(console_blocks.run_command, REPROKIT_PROOFS="1")  # it is a number
    assert_shown(name, console_blocks.run_folder(BLOCKS[name], tmp_path, run))


def test_the_block_of_a_wrong_result(wrong_result: CallResult, tmp_path: Path) -> None:
    """`reprokit pack` prints the result of the capture that other tests share once more; the block
    shows it.
    """
    output = wrong_result.run_dir.parent

    def run(command: str, folder: Path) -> str:
        assert command == "reprokit capture samples/wrong_result.py:make --output-dir out"
        again = console_blocks.run_command(f"reprokit pack {wrong_result.run_dir}", folder)
        return again.replace(str(output), f"{console_blocks.HOME}/out")

    assert_shown("wrong", console_blocks.run_folder(BLOCKS["wrong"], tmp_path, run))
