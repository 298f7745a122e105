"""The size of TORCH_TRACE is limited."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reprokit.core.reported import trace_records
from reprokit.host.system import files
from tests.support.reprokit_calls import reprokit

PROGRAM = """
import torch

for number in range(40):
    names = {"torch": torch}
    exec(f"def function{number}(x): return x.sin() + {number}", names)
    torch.compile(names[f"function{number}"], backend="eager")(torch.ones(3))
"""


@pytest.mark.real
def test_the_oldest_compiles_of_a_trace_are_dropped_and_named(tmp_path: Path) -> None:
    """The last ones can be read: in the run directory, in the pack, and as files of torch."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = (sys.executable, "program.py")
    words = ("--trace-limit", "150kB", "--output-dir", "out", "--", *command)
    done = reprokit("capture", "--json", *words, cwd=tmp_path)
    assert done.status == 0, done.err
    (why,) = [row["why"] for row in done.json["missing"] if row["what"] == "TORCH_TRACE"]
    assert why.startswith("without the oldest compiles (0/0, 1/0, 2/0")
    assert why.endswith("because of --trace-limit 0.15MB")
    run = tmp_path / "out" / "run-001"
    (trace,) = (run / "trace").iterdir()
    assert trace.stat().st_size <= 150_000
    with files.open_unpacked_file(trace) as file:
        record = trace_records.read_trace(file.read().decode().splitlines(keepends=True))
    assert "39/0" in record.compiles and "0/0" not in record.compiles and not record.problems
    shown = reprokit("show", done.json["pack"], "--graphs", "--json").json["compiles"]
    assert [row["id"] for row in shown] == list(record.compiles)
    assert reprokit("capture", "--trace-limit", "7", "--", *command).status == 2


def test_the_option_takes_sizes(tmp_path: Path) -> None:
    """The message for a wrong one has an example."""
    for word in ("1", "20 parsec", "99kB", "-1MB"):
        done = reprokit("capture", "--trace-limit", word, "--", "true", cwd=tmp_path)
        assert done.status == 2 and "such as 500MB" in done.err, done.err
