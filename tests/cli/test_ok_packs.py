"""A run without a failure has a verdict and a pack, and other commands have an answer for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.host.pack import reader
from tests.support.reprokit_calls import reprokit


@pytest.mark.real
def test_a_run_on_fake_weights_leaves_a_report_and_nothing_to_file(tmp_path: Path) -> None:
    """The target was compiled and not executed. There is no issue and no repro, and each command
    that needs one says so in one line.
    """
    words = (
        "--model",
        "llama-tiny",
        "--layers",
        "1",
        "--weights",
        "fake",
        "--output-dir",
        tmp_path / "out",
    )
    done = reprokit("capture", *words)
    assert done.status == 0, done.out + done.err
    first, *rows = done.out.splitlines()
    assert first == "ok: 1 graph was compiled to the end of code generation.", first
    assert rows[0].startswith("note       nothing was executed because the weights are"), rows
    names = {row.split()[0] for row in rows if row and row[0] != " "}
    assert "report" in names and not {"issue", "repro", "next"} & names, done.out
    (pack,) = (tmp_path / "out").glob("*.tar.gz")
    held = reader.read_pack(pack).files
    issue_files = ("issue.md", "repro.py", "issue/", "candidate.py")
    left = [
        *held,
        *(
            p.relative_to(p.parents[1]).as_posix()
            for p in (tmp_path / "out").rglob("run-001/pack/**/*")
        ),
    ]
    assert not [name for name in left if name.startswith(issue_files)], left
    assert "There is nothing to file upstream: nothing failed." in held["README.md"].decode()
    for command in (
        ("replay", pack, "--yes"),
        ("ablate", pack, "--yes"),
        ("minimize", pack, "--yes"),
        ("workarounds", pack, "--yes"),
        ("bisect", pack, "--yes", "--good", "2.9.1", "--bad", "2.13.0"),
    ):
        refused = reprokit(*command)
        assert refused.status == 2 and len(refused.err.splitlines()) == 1, (command, refused.err)
        assert "nothing failed" in refused.err or "no failing program" in refused.err, (
            command,
            refused.err,
        )
    issue = reprokit("issue", pack)
    assert issue.status == 1 and issue.out.strip().endswith(
        "is not a bug to file: nothing failed"
    ), issue.out
    shown = reprokit("show", pack)
    assert shown.status == 0 and "nothing was executed" in " ".join(shown.out.split()), shown.out
