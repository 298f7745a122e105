"""What makes one repro better than another."""

from __future__ import annotations

from reprokit.host.minimize.minimize_result import repro_cost


def test_fewer_lines_then_fewer_characters_then_smaller_numbers() -> None:
    """Sizes of one digit look alike in length; comments and empty lines count nothing."""
    assert (
        repro_cost("x = randn(1, 1)\n")
        < repro_cost("x = randn(8, 1)\n")
        < repro_cost("x = randn(16, 1)\n")
        < repro_cost("x = 1\ny = 1\n")
    )
    assert repro_cost("# words\n\nx = 1\n")[0] == 1


def test_a_compilers_name_costs_lines() -> None:
    """A longer program that a person could have written is the better one."""
    assert repro_cost("torch._C._nn.gelu(x)\n") > repro_cost("a = 1\n" * 10)
