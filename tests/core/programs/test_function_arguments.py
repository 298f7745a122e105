"""Functions that are arguments lose the operands that are not needed, and become lambdas."""

from __future__ import annotations

import ast

import pytest

from reprokit.core.reduce.passes import function_arguments

LOOP = """
def while_loop(condition, advance, state):
    while condition(*state):
        state = advance(*state)
    return state

def repro(a, b):

    def cond(i, x, y):
        return i < 3

    def body(i, x, y):
        return (i + 1, x + a, y + b)
    return while_loop(cond, body, (0, a * 0, b + 1))
result = repro(2, 5)
"""
BRANCHES = """
def cond(pred, true_fn, false_fn, operands):
    return (true_fn if pred else false_fn)(*operands)

def repro(x, y):
    return cond(x > 0, lambda a, b: a + b, lambda p, q: p - q, (x, y))
result = repro(1, 2)
"""


def runs(text: str) -> bool:
    """Return whether a program runs in eager."""
    try:
        exec(text, {"__name__": "repro"})
    except Exception:
        return False
    return True


def test_a_state_that_is_not_needed_goes_everywhere() -> None:
    """From the operands, from both functions, and from what the body returns."""
    text = function_arguments.drop_operands(LOOP, lambda new: "i + 1" in new and runs(new))
    assert "cond(i)" in text and "return (i + 1,)" in text and "(0,)" in text


def test_an_operand_that_is_a_name_is_read_from_outside() -> None:
    """A branch reads the variable itself, where the name of its parameter differs too."""
    tried: list[str] = []
    function_arguments.drop_operands(BRANCHES, lambda new: bool(tried.append(new)))
    assert "lambda b: x + b, lambda q: x - q, (y,)" in tried[0]
    assert "lambda a: a + y, lambda p: p - y, (x,)" in tried[1] and len(tried) == 2


@pytest.mark.parametrize(
    "text",
    [
        "torch.cond(p, f, g, operands)",
        "torch.cond(p, f, g, (x,))",
        "torch.while_loop(c, b, (x, y))",
        "def b(x, y):\n    return x\nb(1, 2)\ntorch.while_loop(b, b, (x, y))",
        "torch.cond(p, lambda x: x, lambda x: x, (x, y))",
        "torch.where(p, x, y)",
    ],
)
def test_what_is_not_known_stays(text: str) -> None:
    """Functions without a text, a single operand, and operands that are no tuple."""
    tried: list[str] = []
    assert function_arguments.drop_operands(text, lambda new: bool(tried.append(new))) == text
    assert not tried


def test_short_functions_become_lambdas() -> None:
    """Those that are used once and only return a value."""
    text = function_arguments.write_lambdas(LOOP, runs)
    assert "lambda i, x, y: i < 3" in text and "def cond" not in text
    assert "def repro" in text


@pytest.mark.parametrize(
    "function",
    [
        "    @torch.no_grad()\n    def f(x):\n        return x",
        "    def f(x: int):\n        return x",
        "    def f(x):\n        y = x\n        return y",
        "    def f(x):\n        return x\n    f(1)",
        f"    def f(x):\n        return x + {'1' * 60}",
    ],
    ids="decorator types statements twice long".split(),
)
def test_other_functions_stay(function: str) -> None:
    """A lambda would differ, or not be easier to read."""
    text = ast.unparse(ast.parse(f"def repro(g):\n{function}\n    return g(f)\n")) + "\n"
    assert function_arguments.write_lambdas(text, lambda new: True) == text


def test_the_passes_keep_the_result() -> None:
    """What the loop computes is the same with lambdas."""
    results = []
    for text in (LOOP, function_arguments.write_lambdas(LOOP, lambda new: True)):
        space: dict[str, object] = {"__name__": "repro"}
        exec(text, space)
        results.append(space["result"])
    assert results == [(3, 6, 21)] * 2
