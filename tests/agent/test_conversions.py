"""Floats that do not fit into the integer type to which a program converts them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.warm_processes import run_torch_program

PROGRAM = """
import json

import torch

from reprokit.agent.record import journal
from reprokit.agent.results import conversions

written = []
journal.write_event = written.append
leaves = conversions.leaves_range
rows = [
    leaves(torch.tensor(value, dtype=torch.float64), dtype)
    for value, dtype in [
        (2.0**63, torch.int64),  # the first double after the largest int64
        (-(2.0**63), torch.int64),
        (2147483647.5, torch.int32),
        (float("nan"), torch.int8),
        (-0.75, torch.uint8),
        (-1.0, torch.uint8),
        ([], torch.int8),
    ]
]
conversions.note_conversions()
x = torch.tensor([1.5, 3e20])
torch.vmap(lambda row: row.int())(torch.ones(2, 2))
results = [x[:1].long(), x.bool(), x.double(), torch.arange(3).char(), x.to(torch.int64)]
x.int()  # only the first one is noted
print(json.dumps([rows, [(event.types, event.where) for event in written], len(results)]))
"""


def test_the_first_conversion_that_does_not_fit_is_noted(tmp_path: Path) -> None:
    """The range is that of the type, without the fraction; other conversions are defined."""
    done = run_torch_program(PROGRAM, cwd=tmp_path)
    rows, noted, count = json.loads(done.stdout.splitlines()[-1])
    assert rows == [True, False, False, True, False, True, False]
    ((types, where),) = noted
    line = next(n for n, row in enumerate(PROGRAM.splitlines(), 1) if "torch.int64)]" in row)
    assert types == "float32 to int64" and where.endswith(f".py:{line}"), where
    assert count == 5
