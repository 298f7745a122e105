"""A repro is written as a person writes Python."""

import ast

import pytest

from reprokit.core.reduce import readable


@pytest.mark.parametrize(
    ("graph", "person"),
    [
        ("x[slice(1, None, None)]", "x[1:]"),
        ("x[slice(None, -1, None)]", "x[:-1]"),
        ("x[slice(None, None, 2), slice(0, 3)]", "x[::2, 0:3]"),
        ("x[slice(None, n, None), 0]", "x[:n, 0]"),
        ("x[slice(3)]", "x[slice(3)]"),
        ("x[()]", "x[()]"),
    ],
)
def test_slices_are_written_as_people_write_them(graph: str, person: str) -> None:
    """The new subscript is equal to the old one for every index."""
    text = readable.lay_out(
        f"import torch\ndef repro(x, n):\n    return {graph}\ntorch.compile(repro)(1, 2)\n",
        "t",
        "exception",
    )
    assert ast.unparse(ast.parse(person)) in text

    class ReturnsKey:
        def __getitem__(self, key: object) -> object:
            return key

    assert eval(graph, {"x": ReturnsKey(), "n": 2}) == eval(person, {"x": ReturnsKey(), "n": 2})


def test_imports_come_first_and_once() -> None:
    """A joined program has those of each file. What concerns an import stays before it."""
    before = (
        "import torch\ndef f():\n    pass\nimport torch\npass\nsizes = [1]\nfrom torch import nn\n"
        "import os\nos.environ['A'] = '1'\nimport json\nimport torch\n"
    )
    assert readable.flatten_calls(before) == (
        "import torch\nfrom torch import nn\nimport os\n\ndef f():\n    pass\nsizes = [1]\n"
        "os.environ['A'] = '1'\nimport json\n"
    )


def test_globals_that_a_function_does_not_assign_are_left_out() -> None:
    """They are left of an object whose other attributes went."""
    text = "def f():\n    global a, b\n    a = 1\ndef g():\n    global c\n    print(c)\nf()\n"
    laid = readable.lay_out(text, "exception: aot | KeyError", "exception")
    assert "    global a\n    a = 1\n" in laid and "global c" not in laid


@pytest.mark.parametrize(
    "body",
    [
        "try:\n        import numpy as np\n    except ImportError:\n        pass",
        "if True:\n\n        def np():\n            pass",
    ],
)
def test_globals_that_other_statements_assign_stay(body: str) -> None:
    """An import and a definition assign names too."""
    text = f"def f():\n    global np\n    {body}\nf()\n"
    assert "global np" in readable.lay_out(text, "exception: aot | KeyError", "exception")
