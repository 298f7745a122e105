"""Repros are compared by lines, characters and numbers."""

from __future__ import annotations

from reprokit.host.minimize.minimize_result import repro_cost


def test_fewer_lines_then_fewer_characters_then_smaller_numbers() -> None:
    """Numbers with the same number of digits differ by value; comments and empty lines do not
    count.
    """
    assert (
        repro_cost("x = randn(1, 1)\n")
        < repro_cost("x = randn(8, 1)\n")
        < repro_cost("x = randn(16, 1)\n")
        < repro_cost("x = 1\ny = 1\n")
    )
    assert repro_cost("# words\n\nx = 1\n")[0] == 1


def test_a_private_name_of_the_compiler_costs_lines() -> None:
    """A longer program of public names is better than a shorter one with names of the compiler."""
    assert repro_cost("torch._C._nn.gelu(x)\n") > repro_cost("a = 1\n" * 10)
