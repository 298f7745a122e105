"""The files of the catalogue: those that come with reprokit, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.catalogue import catalogue_files

ENTRY = """
issue = "pytorch/pytorch#1234"
title = "it's \\"quoted\\" \\u00fc"
kind = "exception"
component = "inductor"
program = '''
import torch
'''
"""


def test_the_entries_of_reprokit_are_complete() -> None:
    """Each has a program that depends on nothing but torch, and was proved."""
    entries = catalogue_files.own_catalogue()
    assert len(entries) >= 60
    assert len({entry.issue for entry in entries}) == len(entries)
    for entry in entries:
        compile(entry.program, entry.issue, "exec")
        assert "torch.compile" in entry.program or "torch._" in entry.program, entry.issue
        assert len(entry.program.splitlines()) < 40, entry.issue
        assert entry.failing, entry.issue
        for run in entry.failing:
            assert run.signature and run.algorithm and run.date, entry.issue


def test_the_files_have_the_names_of_their_issues() -> None:
    for path in catalogue_files.OWN_FOLDER.glob("*"):
        entry = catalogue_files.read_entry(path)
        assert path.name == catalogue_files.file_name(entry)
        assert path.read_text() == catalogue_files.entry_text(entry)


def test_an_entry_survives_being_written(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(ENTRY)
    entry = catalogue_files.read_entry(path)
    assert entry.title == 'it\'s "quoted" \u00fc' and entry.program == "import torch\n"
    catalogue_files.write_entry(entry, path)
    assert catalogue_files.read_entry(path) == entry


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("issue = ", "is not an entry of a catalogue: Invalid value"),
        ("issue = 3", "is not an entry of a catalogue: 3 is not of type str"),
        ("x" * 300_000, "is larger than 200000 bytes"),
        (ENTRY.replace("pytorch/pytorch#1234", "?"), "is not OWNER/REPOSITORY#NUMBER"),
    ],
)
def test_a_damaged_entry_is_named(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(BadInput, match=why) as caught:
        catalogue_files.read_catalogue(tmp_path)
    assert "bad.toml" in str(caught.value)


def test_a_catalogue_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no catalogue"):
        catalogue_files.read_catalogue(tmp_path / "absent")
