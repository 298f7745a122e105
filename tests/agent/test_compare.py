"""Which of two results is wrong, and how: real tensors, as two runs leave them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reprokit.agent.results.compare_results import differences

INF, NAN = float("inf"), float("nan")


def row(value: Any, alias: str = "", is_random: bool = False) -> dict[str, Any]:
    told: dict[str, Any] = {
        "call": 0,
        "name": "output",
        "alias": alias,
        "is_random": is_random,
        "tensor": None,
    }
    if not isinstance(value, torch.Tensor):
        return {**told, "value": repr(value)}
    told.update(
        dtype=str(value.dtype), shape=list(value.shape), stride=list(value.stride()), tensor=value
    )
    return told


def compared(eager: Any, compiled: Any, wide: Any = None, **facts: Any) -> tuple[str, str] | None:
    key = (0, "output")
    rows = {key: row(wide)} if wide is not None else {}
    found = differences(torch, {key: row(eager)}, {key: row(compiled, **facts)}, rows)
    return (found[0]["what"], found[0]["side"]) if found else None


def floats(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("eager", "compiled", "reference", "found"),
    [
        (floats(1.0, 2.0), floats(1.0, 2.0), wide(1, 2), None),
        (floats(1.0, 2.0), floats(1.0, 2.0000002), wide(1, 2), None),
        (floats(1.0, 2.0), floats(1.0, 2.5), wide(1, 2), ("values", "compiled")),
        (floats(1.0, 2.5), floats(1.0, 2.0), wide(1, 2), ("values", "eager")),
        (floats(1.0, 2.0), floats(1.0, 2.5), None, ("values", "unknown")),
        (floats(1.1, 2.2), floats(0.9, 1.8), wide(1, 2), None),
        (floats(69.77), floats(INF), wide(69.77), ("inf", "compiled")),
        (floats(INF), floats(-INF), wide(INF), ("inf", "compiled")),
        (floats(NAN, 1.0), floats(NAN, 1.0), wide(NAN, 1), None),
        (floats(NAN), floats(1.0), wide(1), ("nan", "eager")),
        (floats(1.0), floats(NAN), wide(1), ("nan", "compiled")),
        (floats(0.0), floats(-0.0), wide(0.0), ("signed-zero", "compiled")),
        (floats(0.0), floats(-0.0), wide(1e-300), None),
        (
            torch.tensor([1, 2]),
            torch.tensor([1, 3]),
            torch.tensor([1, 2]),
            ("integers", "compiled"),
        ),
        (
            torch.tensor([2**53 + 1]),
            torch.tensor([2**53]),
            torch.tensor([2**53 + 1]),
            ("integers", "compiled"),
        ),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([4, 5]), None),
        (torch.tensor([True]), torch.tensor([False]), None, ("integers", "unknown")),
        (floats(1.0), floats(1.0, dtype=torch.float64), None, ("dtype", "unknown")),
        (floats(1.0, 2.0), floats(1.0), None, ("shape", "unknown")),
        (torch.ones(2, 3), torch.ones(3, 2).t(), None, ("stride", "unknown")),
        (torch.ones(1, 3), torch.ones(3, 1).t(), None, None),
        (3, 4, None, ("value", "unknown")),
        (0.1 + 0.2, 0.3, None, None),
        (torch.empty(0), torch.empty(0), None, None),
        (
            floats(1.0, 2.0, dtype=torch.bfloat16),
            floats(1.0, 2.015625, dtype=torch.bfloat16),
            wide(1, 2),
            None,
        ),
    ],
)
def test_each_kind_of_difference_is_named_with_the_side_that_is_wrong(
    eager: Any, compiled: Any, reference: Any, found: Any
) -> None:
    """Numbers within tolerance, or as far from float64 as eager's, are no difference; integers are
    exact.
    """
    assert compared(eager, compiled, reference) == found


def test_an_output_that_no_longer_shares_its_arguments_memory_is_named() -> None:
    """Writing to it later would change the argument in one program and not in the other."""
    assert compared(floats(1.0), floats(1.0), alias="argument[0]") == ("aliasing", "unknown")


def test_one_wrong_element_in_a_million_is_found() -> None:
    """A root mean square over all elements does not drown it."""
    eager = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    compiled = eager.clone()
    compiled[123_456] += 0.1
    key = (0, "output")
    found = differences(torch, {key: row(eager)}, {key: row(compiled)}, {key: row(eager.double())})
    assert (
        found[0]["index"] == [123_456] and found[0]["count"] == 1 and found[0]["side"] == "compiled"
    )
    assert 0.09 < found[0]["max_abs"] < 0.11 and found[0]["mean_abs"] < 1e-6


def test_noise_that_a_program_amplifies_is_no_wrong_result() -> None:
    """What cancels leaves rounding errors alone; float64 says that eager is as wrong."""
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    eager, compiled = (x + 1e6) - 1e6 - x, (x - 1e6) + 1e6 - x
    assert compared(eager, compiled, torch.zeros(1000, dtype=torch.float64)) is None


def test_random_results_have_no_float64_reference() -> None:
    """Generators draw other numbers for other types."""
    key = (0, "output")
    one, two = row(floats(1.0), is_random=True), row(floats(2.0), is_random=True)
    assert differences(torch, {key: one}, {key: two}, {key: row(wide(1.0))})[0]["side"] == "unknown"


def test_what_only_one_side_has_is_missing() -> None:
    """Such as a gradient that compiled code does not give."""
    key = (-1, "gradient of argument[0]")
    assert differences(torch, {key: row(floats(1.0))}, {}, {})[0]["what"] == "missing"
    assert differences(torch, {}, {key: row(floats(1.0))}, {})[0]["what"] == "missing"
