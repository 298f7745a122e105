"""Each pass over program text is tested with a predicate that a person can check."""

from __future__ import annotations

import ast
import re

import pytest

from reprokit.core.reduce import readable
from reprokit.core.reduce.ast_edits import Test
from reprokit.core.reduce.passes import dead_code, statements, straight_line

MODEL = '''
import os
import torch
from torch import nn

class Block(nn.Module):
    """Not needed."""

    def __init__(self, size):
        super().__init__()
        self.a = nn.Linear(size, size)
        self.b = nn.Linear(size, 4 * size)

    def forward(self, x):
        y = self.a(x)
        for _ in range(3):
            with torch.no_grad():
                y = torch.erf(y)
        return y + 1

def helper():
    return 1

model = Block(64)
x = torch.randn(64, 64)
torch.compile(model, mode="max-autotune", dynamic=True)(x)
'''


def has(*words: str) -> Test:
    """Return a predicate: the text is a valid program with all these words."""

    def test(text: str) -> bool:
        ast.parse(text)
        return all(re.search(word, text) for word in words)

    return test


def test_statements_are_left_out_from_the_outside_in() -> None:
    """Statements that the predicate does not need are removed, and the last return of a function
    stays.
    """
    text = statements.drop_statements(MODEL, has(r"torch\.erf", r"torch\.compile"))
    assert "helper" not in text and "import os" not in text and "self.b" not in text
    assert "return y + 1" in text


def test_blocks_are_unwrapped() -> None:
    """Loops and contexts around the needed statement are removed."""
    text = statements.unwrap_blocks(MODEL, has(r"torch\.erf"))
    assert "for " not in text and "with " not in text and "torch.erf" in text


def test_arguments_and_elements_are_left_out() -> None:
    """Keyword arguments and elements of displays are removed unless they are needed."""
    text = statements.drop_parts(
        "torch.compile(f, mode='x', dynamic=True)\nrows = [1, 2, 3]\n", has("dynamic", "2")
    )
    assert ast.dump(ast.parse(text)) == ast.dump(
        ast.parse("torch.compile(f, dynamic=True)\nrows = [2]")
    )
    layers = "model = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), Own(), nn.Linear(1, 1))\n"
    text = statements.drop_parts(layers, has("Own", r"Linear\(1, 1\)"))
    assert text in (
        "model = nn.Sequential(nn.Linear(1, 1), Own())\n",
        "model = nn.Sequential(Own(), nn.Linear(1, 1))\n",
    )


def test_an_unpacked_dict_is_left_out() -> None:
    """``**more`` in a display has no key of its own."""
    text = statements.drop_parts("rows = {'a': 1, **more, 'b': 2}\n", has("'a'"))
    assert text.strip() == "rows = {'a': 1}"


def test_expressions_become_their_parts() -> None:
    """A call is replaced by its argument where that is enough."""
    assert (
        statements.simplify_expressions("y = torch.sin(torch.erf(x) + 1)\n", has(r"erf\("))
        == "y = torch.erf(x)\n"
    )


def test_numbers_shrink_together_with_their_multiples() -> None:
    """A size and its multiples keep their ratio: 64 and 256 become 1 and 4, or 2 and 8."""

    def fits(text: str) -> bool:
        constants = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
        return constants[0] * 4 == constants[1] and constants[0] >= 2

    text = statements.shrink_numbers("a = 64\nb = 256\n", fits)
    assert text == "a = 2\nb = 8\n"


def test_sizes_of_a_factory_are_made_smaller_first() -> None:
    """Keyword arguments and defaults of called functions shrink, smallest values first; other
    numbers stay.
    """
    before = "def make(layers=8, heads=4):\n    return 7 * layers\nmodel = make(hidden=64)\n"
    text = statements.shrink_knobs(before, lambda t: "hidden=1)" not in t and "layers=1," not in t)
    assert text == "def make(layers=2, heads=1):\n    return 7 * layers\nmodel = make(hidden=2)\n"


def test_an_unused_parameter_is_removed_with_its_argument() -> None:
    """Imports, functions and parameters that are not read are removed, with the argument of the
    compiled call.
    """
    before = (
        "import os\nimport torch\ndef f(x, y):\n    return x\na = 1\nb = 2\ntorch.compile(f)(a,"
        " b)\n"
    )
    text = dead_code.drop_unused(before, lambda text: True)
    assert "import os" not in text and "def f(x):" in text and "torch.compile(f)(a)" in text


def test_an_import_has_only_the_package_that_is_used() -> None:
    """An import whose setting was removed becomes an import of its package, and appears once."""
    before = (
        "import torch\nimport torch._inductor.config\nimport"
        " torch._dynamo.config\ntorch._dynamo.config.x = 1\n"
    )
    assert (
        dead_code.drop_unused(before, lambda text: True)
        == "import torch\nimport torch._dynamo.config\ntorch._dynamo.config.x = 1\n"
    )


def test_equal_inputs_are_merged() -> None:
    """Two arguments with the same constructor call become one, also in the function."""
    before = (
        "def f(x, y):\n    return x + y\np = torch.randn(2)\nq ="
        " torch.randn(2)\ntorch.compile(f)(p, q)\n"
    )
    text = dead_code.merge_arguments(before, lambda text: True)
    assert "def f(x):" in text and "return x + x" in text and "(p)" in text and "q =" not in text


def test_many_equal_inputs_cost_one_test_each() -> None:
    """For a hundred equal inputs, the number of tests grows with the inputs, not with the pairs of
    inputs.
    """
    names = [f"v{i}" for i in range(100)]
    rows = "".join(f"{n} = torch.randn(2)\n" for n in names)
    text = (
        f"def f({', '.join(names)}):\n    return v0\n{rows}torch.compile(f)({', '.join(names)})\n"
    )
    tested_texts: list[str] = []
    dead_code.merge_arguments(text, lambda new: bool(tested_texts.append(new)))
    assert len(tested_texts) <= 100


def test_an_edit_that_breaks_the_program_is_rejected() -> None:
    """``with a, b:`` without both contexts is not a valid program; a hundred arguments have
    names.
    """
    text = "with torch.no_grad(), torch.autocast('cpu'):\n    torch.compile(f)(x)\n"
    assert "with" in statements.drop_parts(text, lambda new: True)
    many = f"args = ({', '.join(str(i) for i in range(120))},)\nf(*args)\n"
    ast.parse(straight_line.straighten_program(many, lambda new: True))


def test_an_assignment_is_bypassed() -> None:
    """The result of a step is replaced by its input."""
    before = "def f(x):\n    a = torch.sin(x)\n    b = torch.erf(a)\n    return b\n"
    assert "sin" not in statements.bypass_calls(before, has("erf"))


@pytest.mark.parametrize(
    "step",
    [
        statements.drop_statements,
        statements.unwrap_blocks,
        statements.drop_parts,
        statements.simplify_expressions,
    ],
)
@pytest.mark.parametrize(
    "step2",
    [
        statements.shrink_numbers,
        statements.bypass_calls,
        dead_code.drop_unused,
        dead_code.merge_arguments,
    ],
)
def test_a_predicate_that_refuses_everything_changes_nothing(step: object, step2: object) -> None:
    """The text is unchanged."""
    for pass_ in (step, step2):
        assert callable(pass_)
        assert pass_(MODEL, lambda text: False) == MODEL


def test_names_of_compilers_become_public() -> None:
    """``torch._C._nn.linear`` becomes torch.nn.functional.linear; a name without a public form
    stays.
    """
    text = "a = torch._C._nn.linear(x, w)\nb = torch.ops.aten.erf.default(a)\n"
    assert (
        readable.public_names(text, lambda t: "torch.erf" in t)
        == "a = torch.nn.functional.linear(x, w)\nb = torch.erf(a)\n"
    )
    assert readable.public_names(text, lambda t: False) == text


def test_values_read_once_are_inlined_and_names_are_short() -> None:
    """``l_x_`` becomes x, and a chain of values that are read once becomes one expression."""
    before = (
        "def repro(l_x_):\n    sin = torch.sin(l_x_)\n    x_1 = torch.erf(sin)\n    return x_1\n"
    )
    assert (
        readable.plain_names(before, lambda t: True)
        == "def repro(x):\n    return torch.erf(torch.sin(x))\n"
    )


def test_a_name_that_is_assigned_again_is_inlined() -> None:
    """``y`` has three values; each is read once."""
    before = "def repro(x):\n    y = x\n    y = torch.erf(y)\n    y = y + 1\n    return y\n"
    assert "return torch.erf(x) + 1" in readable.plain_names(before, lambda text: True)
    twice = "def repro(x):\n    y = x\n    z = torch.erf(y)\n    y = y + z\n    return y\n"
    assert "return a + torch.erf(a)" in readable.plain_names(twice, lambda text: True)


def test_a_value_read_twice_keeps_its_name() -> None:
    """Nothing is computed twice."""
    text = readable.plain_names(
        "def repro(x):\n    sin = torch.sin(x)\n    return sin + sin\n", lambda t: True
    )
    assert "sin = torch.sin(x)" in text


def test_the_layout_has_the_expected_and_the_actual_result() -> None:
    """The comment is above the call, lines are no longer than a terminal, and the program is the
    same.
    """
    before = "import torch\ndef f(x):\n    return x\nx = torch.randn(2)\ntorch.compile(f)(x)\n"
    text = readable.lay_out(before, "exception: lowering | " + "very long words " * 12, "exception")
    assert (
        text.index("# expected: no error")
        < text.index("# happens:")
        < text.index("torch.compile(f)(x)")
    )
    assert max(map(len, text.splitlines())) <= 90
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(before))


def test_flatten_keeps_the_main_block_and_removes_docstrings() -> None:
    """Docstrings are removed, and the guarded block becomes the end of the program."""
    text = readable.flatten_calls(
        '"""Words."""\ndef f():\n    """More."""\n    return 1\nif __name__ == "__main__":\n   '
        " f()\n"
    )
    assert text == "def f():\n    return 1\nf()\n"


def test_a_program_is_written_from_top_to_bottom() -> None:
    """A factory that is called once, the unpacking of a tuple, and the name of the compiled
    function are removed.
    """
    before = (
        "import torch\n\ndef f(x):\n    return x\n\ndef make():\n    n = 3\n    return"
        " (torch.func.jacfwd(f), (torch.ones(n),))\nmodel, args = make()\ncompiled ="
        " torch.compile(model)\ncompiled(*args)\n"
    )
    assert (
        straight_line.straighten_program(before, lambda text: True)
        == "import torch\n\ndef f(x):\n    return x\nn = 3\nmodel = torch.func.jacfwd(f)\nx ="
        " torch.ones(n)\ntorch.compile(model)(x)\n"
    )


def test_a_result_that_nothing_reads_has_no_name() -> None:
    """A call without a reader loses the name of its result, and a result that is read keeps it."""
    before = "a = f(1)\nb = g(2)\nprint(b)\n"
    text = straight_line.straighten_program(before, lambda text: True)
    assert text == "f(1)\nb = g(2)\nprint(b)\n"


def test_a_factory_that_returns_a_dict_is_inlined() -> None:
    """The model, the calls and the arguments of compile replace their uses; a single call needs no
    loop.
    """
    before = (
        "import torch\n\ndef f(x):\n    return x\n\ndef make():\n    return {'model': f, 'calls':"
        " [((torch.ones(3),), {})], 'compile': {'fullgraph': True}}\nmade = make()\nmodel ="
        " made['model']\ncompiled = torch.compile(model, **made.get('compile', {}))\nfor args,"
        " kwargs in made.get('calls', [((), {})]):\n    compiled(*args, **kwargs)\n"
    )
    text = dead_code.drop_unused(
        straight_line.straighten_program(before, lambda text: True), lambda text: True
    )
    assert (
        text == "import torch\n\ndef f(x):\n    return x\nx = torch.ones(3)\ntorch.compile(f,"
        " fullgraph=True)(x)\n"
    )


def test_a_function_that_is_called_twice_stays() -> None:
    """A factory with two calls stays; of one with one call, a variable may get a new name."""
    twice = "def make():\n    return 1\na = make()\nb = make()\nprint(a, b)\n"
    assert straight_line.straighten_program(twice, lambda text: True) == twice
    shadow = "def make():\n    n = 1\n    return n\nn = 2\na = make()\nprint(n, a)\n"
    straight = "n = 2\nn_2 = 1\nprint(n, n_2)\n"
    assert straight_line.straighten_program(shadow, lambda text: True) == straight


def test_a_deep_expression_is_no_obstacle() -> None:
    """A tree that is too deep to copy stays unchanged."""
    text = "x = " + " + ".join("a" * 400) + "\n"
    assert statements.simplify_expressions(text, lambda new: False) == text


def test_a_library_is_replaced_where_its_name_does_not_matter() -> None:
    """A repro that imports a library only to pass one of its names needs torch alone."""
    text = (
        "import torch, numpy as np\nfrom transformers import BertConfig, BertModel\n"
        "model = Net(BertConfig, BertModel(3))\nx = torch.ones(np.size(3))\n"
    )
    found = dead_code.drop_libraries(text, lambda new: "BertModel(" in new and "np.size" in new)
    assert "model = Net(None, BertModel(3))" in found and "np.size(3)" in found
    plain = "import math, torch\nx = torch.ones(math.ceil(2.5))\n"
    assert dead_code.drop_libraries(plain, lambda new: True) == plain


def test_a_call_of_a_library_becomes_one_operator() -> None:
    """A graph without an operator is not compiled, so the argument alone may not do."""
    text = "def forward(self, x):\n    return self.encoder(x).last_hidden_state\n"
    has_operator = lambda new: "x + 1" in new or "encoder" in new  # noqa: E731
    assert "return x + 1" in statements.simplify_expressions(text, has_operator)
