"""What makes one repro better than another."""

from __future__ import annotations

from reprokit.host.minimize.minimize_result import cost


def test_fewer_lines_then_fewer_characters_then_smaller_numbers() -> None:
    """Sizes of one digit look alike in length; comments and empty lines count nothing."""
    assert cost("x = randn(1, 1)\n") < cost("x = randn(8, 1)\n") < cost("x = randn(16, 1)\n") < cost("x = 1\ny = 1\n")
    assert cost("# words\n\nx = 1\n")[0] == 1


def test_a_compilers_name_costs_lines() -> None:
    """A longer program that a person could have written is the better one."""
    assert cost("torch._C._nn.gelu(x)\n") > cost("a = 1\n" * 10)
