"""Code is taken out of classes, functions and loops; each pass is tested with a predicate on the
text.
"""

from __future__ import annotations

import pytest

from reprokit.core.reduce.passes import inline_classes, straight_line

NESTED = """
class Inner(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.w = nn.Linear(size, size)
    def forward(self, x):
        return bad(self.w(x))
class Outer(nn.Module):
    def __init__(self, size, depth=2):
        super().__init__()
        self.parts = nn.ModuleList([Inner(size) for _ in range(depth)])
    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x
torch.compile(Outer(8))(x)
"""


def test_a_generator_that_nothing_reads_is_what_it_iterates_over() -> None:
    program = "import torch\n(t for t in torch.compile(f)(x) if t.requires_grad)\n"
    text = straight_line.straighten_program(program, lambda new: True)
    assert text == "import torch\ntorch.compile(f)(x)\n"


def test_a_list_that_is_filled_by_one_append_is_a_literal() -> None:
    """The loop over its one item is the body. A list that is read before, or has two items, stays."""
    program = (
        "import torch\ncalls = []\nx = torch.ones(3)\ncalls.append(((x,), {}))\n"
        "for args, kwargs in calls:\n    torch.compile(f)(*args, **kwargs)\n"
    )
    text = straight_line.straighten_program(program, lambda new: True)
    assert "calls" not in text and "torch.compile(f)(x)" in text
    for kept in (
        "rows = []\nprint(rows)\nrows.append(1)\nfor row in rows:\n    print(row)\n",
        "rows = []\nrows.append(len(rows))\nfor row in rows:\n    print(row)\n",
        "rows = []\nif x:\n    rows.append(1)\nfor row in rows:\n    print(row)\n",
    ):
        assert straight_line.straighten_program(kept, lambda new: True) == kept
    two = "rows = []\nrows.append(1)\nrows.append(2)\nfor row in rows:\n    print(row)\n"
    text = straight_line.straighten_program(two, lambda new: True)
    assert text == two.replace("rows = []\nrows.append(1)", "rows = [1]")


def test_a_submodule_replaces_the_whole_model() -> None:
    """The inner module is constructed with the arguments of the outer one, and the outer class is
    removed.
    """
    text = inline_classes.inline_submodules(NESTED, lambda new: "bad(" in new and "Inner(" in new)
    assert "torch.compile(Inner(8))(x)" in text and "Outer" not in text


def test_a_submodule_that_needs_a_local_name_is_proposed_and_rejected() -> None:
    """The predicate sees an undefined name and returns False, so the program stays unchanged."""
    text = NESTED.replace("Inner(size)", "Inner(local)").replace(
        "super().__init__()\n        self.parts", "local = size\n        self.parts"
    )
    assert (
        inline_classes.inline_submodules(
            text, lambda new: "compile(Inner(local" not in new and "bad(" in new
        )
        == text
    )


def test_constants_replace_names_with_one_value() -> None:
    """Class attributes, parameters with the same value in every call, and defaults become
    constants, and unused names are removed.
    """
    before = (
        "DEPTH = 2\nclass Config:\n    size: int = 4\n"
        "def make(n, unread, kind='a', depth=DEPTH):\n    return Net(n, kind, depth)\n"
        "m = make(Config.size, 7)\n"
    )
    text = inline_classes.inline_constants(before, lambda new: True)
    assert "def make():\n    return Net(4, 'a', 2)" in text and "m = make()" in text


def test_a_default_that_is_not_needed_is_removed() -> None:
    """A default of ``forward``, which is called through the module, is also removed."""
    before = (
        "class M:\n    def forward(self, x, scale=None):\n        return x\ntorch.compile(M())(x,"
        " scale=2)\n"
    )
    text = inline_classes.inline_constants(before, lambda new: True)
    assert "def forward(self, x):" in text and "(x)" in text


def test_a_parameter_that_is_given_by_name_becomes_its_constant() -> None:
    """The function may pass on its other arguments; with two values the parameter stays."""
    before = (
        "class Q(nn.Linear):\n    def __init__(self, *sizes, bits=8, **more):\n"
        "        super().__init__(*sizes, **more)\n        self.scale = 2 ** bits\n"
        "q = Q(1, 2, bits=4)\n"
    )
    text = inline_classes.inline_constants(before, lambda new: True)
    assert "def __init__(self, *sizes, **more):" in text and "self.scale = 2 ** 4" in text
    assert "q = Q(1, 2)" in text
    twice = before + "r = Q(1, 2)\n"
    assert "bits" in inline_classes.inline_constants(twice, lambda new: True)


def test_a_parameter_with_two_values_stays() -> None:
    """A parameter stays when two calls have two values, when a call has a star, and when the
    function is passed on.
    """
    for calls in ("f(1)\nf(2)\n", "f(*a)\n", "f(1)\ng(f)\n"):
        before = "def f(n):\n    return n + 1\n" + calls
        assert inline_classes.inline_constants(before, lambda new: True) == before


def test_the_first_iteration_replaces_the_loop() -> None:
    """The first value of range, of a literal, of a generator of one value or of any other iterable
    is used.
    """
    for loop, first in (
        ("for i in range(9):", "i = 0"),
        ("for i in range(3, 9):", "i = 3"),
        ("for i in [5, 6]:", "i = 5"),
        ("for i in gen():", "i = 7"),
        ("for n, i in enumerate(gen()):", "i = 7"),
        ("for i in xs:", "i = next(iter(xs))"),
        ("for _ in z:\n    i = next(iter([[8, 9], [5]]))", "i = [8, 9]"),
    ):
        text = inline_classes.unroll_loops(
            f"def gen():\n    yield 7\n{loop}\n    use(i)\n", lambda new: "use(i)" in new
        )
        assert "for " not in text and first in text, loop


def test_a_module_without_state_becomes_a_function() -> None:
    """``forward`` becomes ``repro``, and the function replaces each call of the class."""
    before = (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "    def forward(self, x):\n        return x.sin()\ntorch.compile(M())(x)\n"
    )
    text = inline_classes.inline_functions(before, lambda new: True)
    assert text == "def repro(x):\n    return x.sin()\ntorch.compile(repro)(x)\n"
    holding = before.replace("x.sin()", "self.w(x)")
    assert inline_classes.inline_functions(holding, lambda new: True) == holding


def test_a_function_that_only_returns_a_value_is_inlined() -> None:
    """The value replaces each call, and also a generator of one value."""
    before = "def a():\n    return torch.ones(2)\ndef b():\n    yield 1\nf(a(), next(b()))\n"
    assert inline_classes.inline_functions(before, lambda new: True) == "f(torch.ones(2), 1)\n"
    before = "def a(x, y=2):\n    return x + y\nf(a(len(z)), a(1, 3))\n"
    assert inline_classes.inline_functions(before, lambda new: True) == "f(len(z) + 2, 1 + 3)\n"
    for unchanged in (
        "def a():\n    return 1\nf(a)\n",
        "def a(x):\n    return x + x\nf(a(g(2)))\n",
        "def a(x):\n    return 1\nf(a(g(2)))\n",
        "def a(*x):\n    return x\nf(a(2))\n",
    ):
        assert inline_classes.inline_functions(unchanged, lambda new: True) == unchanged


def test_a_function_that_one_function_calls_is_inlined_into_it() -> None:
    """A variable with the name of another one gets a new name."""
    before = (
        "def inner(x, n):\n    y = x + n\n    return y\n"
        "def repro(x):\n    x = inner(x, 2)\n    return x\ntorch.compile(repro)(x)\n"
    )
    text = inline_classes.inline_functions(before, lambda new: True)
    assert text == (
        "def repro(x):\n    n = 2\n    y = x + n\n    x = y\n    return x\ntorch.compile(repro)(x)\n"
    )
    returned = before.replace("    x = inner(x, 2)\n    return x\n", "    return inner(x, 2)\n")
    text = inline_classes.inline_functions(returned, lambda new: True)
    assert "def repro(x):\n    n = 2\n    y = x + n\n    return y\n" in text
    clash = before.replace(
        "inner(x, 2)\n    return x\n", "inner(x, n=2)\n    y = 3\n    return x + y\n"
    )
    text = inline_classes.inline_functions(clash, lambda new: True)
    assert "    n = 2\n    y_2 = x + n\n    x = y_2\n    y = 3\n    return x + y\n" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "def step():\n    global n\n    n += 1\ndef repro(a):\n    step()\n    return a\nf(repro)\n",
            "\ndef repro(a):\n    global n\n    n += 1\n    return a\nf(repro)\n",
        ),
        ("def a(x):\n    return x + 1\nprint(a(a(1)))\n", "print(1 + 1 + 1)\n"),
        (
            "def f():\n    global a\nfor i in range(3):\n    f()\n",
            "for i in range(3):\n    pass\n",
        ),
    ],
)
def test_more_calls_are_inlined(before: str, after: str) -> None:
    """A function that assigns globals, nested calls, and one that does nothing."""
    text = inline_classes.inline_functions(before, lambda new: True)
    text = straight_line.straighten_program(text, lambda new: True)
    assert text.strip() == after.strip()


@pytest.mark.parametrize(
    "program",
    [
        "def main():\n    n = 0\n\n    def step():\n        nonlocal n\n        n += 1\n    step()\nmain()\n",
        "def make():\n    b = 1\n    return b\nx = y = make()\nprint(x, y)\n",
    ],
)
def test_what_has_no_place_in_a_module_is_not_inlined(program: str) -> None:
    """A ``nonlocal`` variable, and a value of two variables."""
    assert straight_line.straighten_program(program, lambda new: True).strip() == program.strip()


def test_a_function_that_is_called_once_is_inlined() -> None:
    """``main()`` at the end of a script and a function with arguments are inlined."""
    text = straight_line.straighten_program(
        "def main(n):\n    m = n + 1\n    use(m)\nmain(3)\n", lambda new: True
    )
    assert text == "n = 3\nm = n + 1\nuse(m)\n"
    generator = "def main():\n    yield 1\nmain()\n"
    assert straight_line.straighten_program(generator, lambda new: True) == generator


def test_a_model_is_constructed_in_the_compile_call() -> None:
    """A name that is read once is replaced by its value."""
    before = "class Net:\n    pass\nnet = Net()\ntorch.compile(net)(x)\n"
    assert "torch.compile(Net())(x)" in straight_line.straighten_program(before, lambda new: True)
    twice = before + "net.train()\n"
    assert "net = Net()" in straight_line.straighten_program(twice, lambda new: True)


def test_a_default_of_a_positional_only_parameter_is_no_obstacle() -> None:
    """Its defaults belong to parameters in a separate list of the syntax tree."""
    for before in (
        "def f(a, b=1, /):\n    return a\ng(f)\n",
        "class M:\n\n    def forward(self, x=1, /):\n        return 2\n",
    ):
        assert inline_classes.inline_constants(before, lambda new: True) == before
