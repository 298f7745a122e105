"""A statement at the start or the end of a compiled function moves out of it."""

import ast

import pytest

from reprokit.core.experiments.remedies.moved_out import moved_out

DECORATED = """\
import torch

@torch.compile(backend="eager")
def f(x, *more, eps=1e-6):
    \"\"\"Scale.\"\"\"
    if x.sum() > 9:
        y = x / 2
        x = y
    z = x / (x.norm() + eps)
    w = z * 2
    v = w * y
    print(v.item())
    return v, z
"""
MODULE = """\
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        self.steps += 1
        return torch.tanh(x)

def main():
    net = torch.compile(Net(), backend="eager", dynamic=True)
    net(torch.ones(3))
"""
CALLED = """\
import torch
def f(x):
    y = torch.sin(x)
    log(y)
    return y
g = torch.compile(f)
"""


MORE = "    y += 1\n    y += 2\n    y += 3\n"


def moved(program: str, line: str) -> str:
    """Return the program; empty where the line cannot move."""
    variants = moved_out(ast.parse(program), program, line)
    for variant in variants:
        ast.parse(variant.program)
    return variants[0].program if variants else ""


def test_a_statement_at_the_start_passes_what_the_rest_reads() -> None:
    """A local variable becomes an argument, and the decorator stays with what is compiled."""
    text = moved(DECORATED, "if x.sum() > 9:")
    rest = (
        '@torch.compile(backend="eager")\ndef f_compiled(x, eps, y):\n    z = x / (x.norm() + eps)'
    )
    assert rest in text and "        x = y\n    return f_compiled(x, eps, y)\n" in text
    assert text.count("@torch.compile") == 1 and "f_old(*args_of_old, **kwargs_of_old)" in text


def test_a_statement_at_the_end_gets_what_it_reads() -> None:
    """The rest returns the local variables that the moved statements read."""
    text = moved(DECORATED, "print(v.item())")
    assert "    return z, v\n" in text
    assert "    z, v = f_compiled(x, eps)\n    print(v.item())\n    return v, z\n" in text


def test_the_rest_of_a_module_is_compiled_where_the_module_was() -> None:
    """The arguments of torch.compile stay the same, and options of the program too."""
    text = moved(MODULE, "self.steps += 1")
    assert (
        "    net = Net()\n    net.forward_compiled = torch.compile(net.forward_compiled,"
        ' backend="eager", dynamic=True)\n'
    ) in text
    assert "        self.steps += 1\n        return self.forward_compiled(x)\n" in text
    assert "g = f\nf_compiled = torch.compile(f_compiled)\n" in moved(CALLED, "log(y)")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("    log(y)\n", "    for n in y:\n        log(n)\n", "for n in y:"),
        ("    log(y)\n", "    log(y)\n    log(y)\n", "log(y)"),
        ("    y = torch.sin(x)\n", "    if x is None:\n        return x\n    y = x\n", "log(y)"),
        ("    y = torch.sin(x)\n", "    global y\n    y = torch.sin(x)\n", "log(y)"),
        ("g = torch.compile(f)\n", "", "log(y)"),
        ("def f(x):", "@other\n@torch.compile\ndef f(x):", "log(y)"),
        ("    log(y)\n", f"{MORE}    log(y)\n{MORE}", "log(y)"),
    ],
)
def test_other_statements_stay(old: str, new: str, line: str) -> None:
    """A loop, a line that is there twice, a function with an early return or a global variable, one
    that is not compiled or has another decorator, and a statement in the middle.
    """
    assert old in CALLED
    assert not moved(CALLED.replace(old, new), line)
