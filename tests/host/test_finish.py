"""The last step of a reduction adds an assertion to a wrong result, so that the program fails by
itself.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Identity, Signature, Verdict
from reprokit.host.minimize import fail_by_itself
from reprokit.host.minimize.answers import oracle
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.probe import client
from reprokit.host.probe.candidate import probe_limits_for

WRONG = """import torch
def wrong(gm, inputs):
    return lambda x: [y + (float(x[0]) < 1.5) for y in gm(x)]
torch.compile(lambda x: x * 2, backend=wrong)(torch.randn(4))
"""
"""The first number that is drawn is 1.54 with seed 0, and below 1.5 with the seed of a watched
run.
"""


@pytest.mark.real
def test_an_assertion_uses_the_values_that_showed_the_failure(tmp_path: Path) -> None:
    """With the usual seed the program passes, so it begins with the seed of the compared runs."""
    parts = Identity("wrong-result", "", "numbers")
    signature = Signature("", parts.title, ALGORITHM, parts=parts)
    result = MinimizeResult(WRONG)
    with client.ProbeServer(tmp_path / "server", sys.executable, "dynamo") as server:
        probe_oracle = oracle.Oracle(
            tmp_path, server, signature, probe_limits_for("wrong-result", 60.0), sys.executable
        )
        with contextlib.closing(probe_oracle):
            assert probe_oracle.shows_failure(WRONG), probe_oracle.last_outcome
            verdict = Verdict("wrong-result", None, None, "")
            text = fail_by_itself.make_failing_program(verdict, signature, probe_oracle, result)
    assert (
        "torch.manual_seed(20)" in text and "torch.testing.assert_close(compiled, eager" in text
    ), result.unproved
    assert not result.unproved
