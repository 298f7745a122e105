"""Two results are compared to find the wrong one and the kind of difference, with real tensors as
two runs leave them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reprokit.agent.results.compare_results import find_differences

INF, NAN = float("inf"), float("nan")


def row(value: Any, alias: str = "", is_random: bool = False) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "call": 0,
        "name": "output",
        "alias": alias,
        "is_random": is_random,
        "tensor": None,
    }
    if not isinstance(value, torch.Tensor):
        return {**fields, "value": repr(value)}
    fields.update(
        dtype=str(value.dtype), shape=list(value.shape), stride=list(value.stride()), tensor=value
    )
    return fields


def compared(eager: Any, compiled: Any, wide: Any = None, **facts: Any) -> tuple[str, str] | None:
    key = (0, "output")
    rows = {key: row(wide)} if wide is not None else {}
    first_differences = find_differences({key: row(eager)}, {key: row(compiled, **facts)}, rows)
    return (
        (first_differences[0]["what"], first_differences[0]["side"]) if first_differences else None
    )


def floats(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("eager", "compiled", "reference", "expected"),
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
    eager: Any, compiled: Any, reference: Any, expected: Any
) -> None:
    """Numbers within tolerance, or as far from float64 as eager's, are not a difference; integers
    must be equal.
    """
    assert compared(eager, compiled, reference) == expected


def test_an_output_that_no_longer_shares_the_memory_of_its_argument_is_named() -> None:
    """A later write to the output would change the argument in one program and not in the other."""
    assert compared(floats(1.0), floats(1.0), alias="argument[0]") == ("aliasing", "unknown")


def test_one_wrong_element_in_a_million_is_found() -> None:
    """The difference is measured for each element, not as a root mean square over all elements."""
    eager = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    compiled = eager.clone()
    compiled[123_456] += 0.1
    key = (0, "output")
    found_differences = find_differences(
        {key: row(eager)}, {key: row(compiled)}, {key: row(eager.double())}
    )
    assert (
        found_differences[0]["index"] == [123_456]
        and found_differences[0]["count"] == 1
        and found_differences[0]["side"] == "compiled"
    )
    assert 0.09 < found_differences[0]["max_abs"] < 0.11 and found_differences[0]["mean_abs"] < 1e-6


def test_noise_that_a_program_amplifies_is_not_a_wrong_result() -> None:
    """A cancellation leaves only rounding errors, and float64 shows that eager is equally wrong."""
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    eager, compiled = (x + 1e6) - 1e6 - x, (x - 1e6) + 1e6 - x
    assert compared(eager, compiled, torch.zeros(1000, dtype=torch.float64)) is None


def test_random_results_have_no_float64_reference() -> None:
    """Generators draw different numbers for different types."""
    key = (0, "output")
    eager, compiled = row(floats(1.0), is_random=True), row(floats(2.0), is_random=True)
    assert (
        find_differences({key: eager}, {key: compiled}, {key: row(wide(1.0))})[0]["side"]
        == "unknown"
    )


@pytest.mark.parametrize("is_eager_shorter", [False, True])
def test_a_program_that_ended_early_is_compared_until_then(is_eager_shorter: bool) -> None:
    """An exception ended one side: later calls are not missing, and gradients are of another time."""
    short = {(call, "output"): row(floats(1.0)) for call in range(2)}
    long = {(call, "output"): row(floats(1.0)) for call in range(4)}
    end = (-1, "gradient of argument[0]")
    short[end], long[end] = row(floats(3.0)), row(floats(5.0))
    sides = (short, long) if is_eager_shorter else (long, short)
    long[1, "gradient of net.weight"] = row(floats(1.0))  # it ended before this backward pass
    for side in sides:
        side[0, "gradient of net.weight"] = row(floats(1.0))
    assert find_differences(*sides, {}) == []
    short[0, "gradient of net.weight"] = row(floats(2.0))
    assert [d["call"] for d in find_differences(*sides, {})] == [0]
    short[0, "gradient of net.weight"] = row(floats(1.0))
    short[1, "output"] = row(floats(2.0))
    assert [d["call"] for d in find_differences(*sides, {})] == [1]
    del short[0, "output"]
    assert [d["what"] for d in find_differences(*sides, {})] == ["missing", "values"]


def test_an_exception_in_the_last_call_ends_its_comparison() -> None:
    """The compiled program ended before the backward pass; otherwise its gradient is missing."""
    eager = {(0, "output"): row(floats(1.0)), (0, "gradient of net.weight"): row(floats(1.0))}
    compiled = {(0, "output"): row(floats(1.0))}
    assert find_differences(eager, compiled, {}, has_compiled_raised=True) == []
    assert [d["what"] for d in find_differences(eager, compiled, {})] == ["missing"]


def test_a_gradient_that_eager_does_not_have_is_missing_although_the_check_of_it_raises() -> None:
    """The compiled program came further than the backward pass, and eager has ended."""
    eager = {(0, "output"): row(floats(1.0))}
    compiled = {(0, "output"): row(floats(1.0)), (0, "gradient of net.weight"): row(floats(0.0))}
    (found,) = find_differences(eager, compiled, {}, has_compiled_raised=True)
    assert (found["what"], found["expected"]) == ("missing", "nothing")
    assert find_differences(eager, compiled, {}, has_eager_raised=True) == []


def test_a_result_of_only_one_side_is_missing() -> None:
    """An example is a gradient that compiled code does not return."""
    key = (-1, "gradient of argument[0]")
    assert find_differences({key: row(floats(1.0))}, {}, {})[0]["what"] == "missing"
    assert find_differences({}, {key: row(floats(1.0))}, {})[0]["what"] == "missing"
