"""A pass that raises leaves the program as it was, and the user reads why."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.reduce.ast_edits import Test
from reprokit.host.minimize import apply_passes
from tests.support.candidates import ScriptedOracle

PROGRAM = "import torch\nx = 1\ntorch.compile(torch.relu)(torch.ones(2))\n"
SHORTER = PROGRAM.replace("x = 1\n", "")


@pytest.mark.parametrize(("times", "is_done"), [(0, True), (2, True), (9, False)])
def test_a_pass_that_python_cannot_run_is_repeated(
    times: int, is_done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 raises such an error now and then; one that stays is named."""
    left = [times]

    def step(text: str, test: Test) -> str:
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch")
        return SHORTER if test(SHORTER) else text

    for table in ("PASSES", "PART_PASSES", "NUMBER_PASSES"):
        monkeypatch.setattr(apply_passes, table, ())
    monkeypatch.setattr(apply_passes, "LAST_PASSES", (("a pass", step),))
    notes: list[str] = []
    oracle = ScriptedOracle(tmp_path, lambda text: same_failure.SAME)
    with contextlib.closing(oracle):
        text = apply_passes.apply_passes(PROGRAM, oracle, notes.append)
    assert (text == SHORTER) == is_done
    assert bool(notes) != is_done


def test_an_edit_after_which_a_program_fails_differently_is_tried_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else needs the line may be gone then; until then, the edit is not tried."""
    rows = ("a = 1\n", "b = 1\n", "c = 1\n", "d = 1\n")
    before = f"import torch\n{''.join(rows)}torch.compile(torch.relu)(torch.ones(2))\n"

    def step(text: str, test: Test) -> str:
        shorter = (text.replace(row, "") for row in rows if row in text)
        return next((new for new in shorter if test(new)), text)

    def answer(text: str) -> str:
        is_other = "a = 1" not in text and ("b = 1" in text or "d = 1" in text)
        return same_failure.OTHER if is_other else same_failure.SAME

    for table in ("PART_PASSES", "NUMBER_PASSES", "LAST_PASSES"):
        monkeypatch.setattr(apply_passes, table, ())
    monkeypatch.setattr(apply_passes, "PASSES", (("a pass", step),))
    oracle = ScriptedOracle(tmp_path, answer)
    with contextlib.closing(oracle):
        text = apply_passes.apply_passes(before, oracle, [].append)
    assert not [row for row in rows if row in text], text
    assert len([text for text in oracle.ran if answer(text) == same_failure.OTHER]) == 1
