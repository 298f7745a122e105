"""The size of a program becomes a variable."""

from __future__ import annotations

import pytest

from reprokit.core.reduce import sized_program

SOURCE = """
import torch

def make(n=4):
    def chain(x):
        for _ in range(n):
            x = x * x
        return x
    return chain, (torch.ones(3),)

model, args = make(n=8, other=2)
print(torch.compile(model)(*args))
"""


def test_the_size_becomes_a_name_that_can_be_changed() -> None:
    """A program at a different size differs only in that number."""
    text = sized_program.with_size(SOURCE, "n")
    assert "n = 8" in text and "make(n=n, other=2)" in text
    assert sized_program.at_size(text, "n", 16) == text.replace("n = 8", "n = 16")


@pytest.mark.parametrize("knob", ["depth", "model", "args"])
def test_a_program_without_that_size_stays_empty(knob: str) -> None:
    """The keyword does not exist, or the program assigns the name elsewhere."""
    assert (
        sized_program.with_size(SOURCE, knob) == "" and sized_program.at_size(SOURCE, "n", 3) == ""
    )


def test_the_loop_over_sizes_fails_when_the_cost_grows_too_fast() -> None:
    """Run with a replacement of torch: linear costs pass, superlinear costs fail, and a single size
    gives the program at that size.
    """
    plain = "import torch\nn = 8\n\ndef f(x):\n    return x * n\n\ntorch.compile(f)(n)\n"
    text = sized_program.loop_over_sizes(plain, "n", (4, 2, 8), 9.0)
    assert (
        "for n in (2, 4, 8):" in text
        and sized_program.loop_over_sizes("import torch\n", "n", (1, 2), 2.0) == "import torch\n"
    )
    single = sized_program.at_size(text, "n", 5)
    assert "for n in (5,):" in single and "lambda" in text and "lambda" not in single
    for power, is_failing in ((1, False), (3, True)):
        fake = (
            "class time:\n    now = 0.0\n    process_time = classmethod(lambda cls:"
            " cls.now)\nclass torch:\n    ones = staticmethod(lambda n: n)\n    _dynamo ="
            " type('D', (), {'reset': staticmethod(lambda: None)})\n    @staticmethod\n    def"
            f" compile(f):\n        def run(n):\n            time.now += float(n) ** {power}\n     "
            "   return run\n"
        )
        body = "\n".join(
            r for r in text.splitlines() if "import" not in r and "fx_graph_cache" not in r
        )
        try:
            exec(fake + body, {})
        except AssertionError:
            assert is_failing
        else:
            assert not is_failing


def test_larger_sizes_fit_together() -> None:
    """A size changes in all calls, and numbers that make no tensor stay."""
    text = (
        "import torch\nx = torch.randn(8, 3)\ny = torch.zeros((8, 1), dtype=torch.int64)\n"
        "torch.nn.Linear(3, 5)(x).softmax(dim=1).view(8, 5)\n"
    )
    programs = dict(sized_program.larger_programs(text))
    assert list(programs) == [
        "it has sizes of 16 instead of 1",
        "it has sizes of 48 instead of 3",
        "it has sizes of 128 instead of 8",
        "it has sizes of 16 instead of 1 and 48 instead of 3 and 128 instead of 8",
    ]
    last = [*programs.values()][-1]
    assert "randn(128, 48)" in last and "zeros((128, 16)" in last and "Linear(48, 5)" in last
    assert "view(128, 5)" in last and "dim=1" in last
    for program in programs.values():
        exec(program, {})
    assert [*sized_program.larger_programs("print(3)")] == []
