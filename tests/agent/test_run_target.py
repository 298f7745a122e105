"""The checks of a run before and after the compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reprokit.agent import run_target
from reprokit.core.shared.errors import BadTarget


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("toaster", "--device toaster: torch has no such device"),
        ("meta", "--device meta computes nothing, so the compiler gets no real graph"),
        ("cuda:0", "--device cuda:0: this torch sees no such device here"),
    ],
)
def test_a_device_that_cannot_be_used_is_one_line(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown, empty and absent devices are refused before anything is built."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadTarget) as error:
        run_target._check_device(name)
    assert str(error.value).startswith(says) and "\n" not in str(error.value)
    assert run_target._check_device("cpu") == "cpu" and run_target._check_device(None) is None


def test_a_model_without_gradients_runs_no_backward() -> None:
    """It is an error only if the user wants to train."""
    losses: list[Any] = []

    def call(model: Any, must_train: bool = False) -> None:
        run_target.call_model(model, (torch.ones(2),), {}, True, losses.append, must_train)

    call(lambda x: (x * 2, "text"))
    assert losses == []
    with pytest.raises(BadTarget, match="no output of the model requires a gradient"):
        call(lambda x: x * 2, must_train=True)
    weight = torch.full((2,), 3.0, requires_grad=True)
    call(lambda x: {"out": x * weight})
    assert [float(loss.detach()) for loss in losses] == [9.0]
