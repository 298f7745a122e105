"""The last step of a reduction: a wrong result gets an assertion that fails by itself."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Signature, Verdict
from reprokit.host.minimize import fail_by_itself, oracle
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.probe import client
from reprokit.host.probe.candidate import limits_for

WRONG = """import torch
def wrong(gm, inputs):
    return lambda x: [y + (float(x[0]) < 1.5) for y in gm(x)]
torch.compile(lambda x: x * 2, backend=wrong)(torch.randn(4))
"""
"""The first number that is drawn is 1.54 with seed 0, and below 1.5 with the seed of a watched
run.
"""


def test_an_assertion_draws_the_values_that_showed_the_failure(tmp_path: Path) -> None:
    """With the usual seed the program passes, so it begins with the seed of the runs that were
    compared.
    """
    signature = Signature("", "wrong-result: no phase | numbers", ALGORITHM)
    found = MinimizeResult(WRONG)
    with client.ProbeServer(tmp_path / "server", sys.executable, "dynamo") as server:
        asker = oracle.Oracle(
            tmp_path, server, signature, limits_for("wrong-result", 60.0), sys.executable
        )
        with contextlib.closing(asker):
            assert asker.holds(WRONG), asker.said
            verdict = Verdict("wrong-result", None, None, "")
            text = fail_by_itself.make_it_fail(verdict, signature, asker, found)
    assert (
        "torch.manual_seed(20)" in text and "torch.testing.assert_close(compiled, eager" in text
    ), found.unproved
    assert not found.unproved
