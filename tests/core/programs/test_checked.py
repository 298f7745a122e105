"""Programs with a check of their own run, fail when the compiler is wrong, and pass when it is
right.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reprokit.core.reduce import assertions, loud_failures
from reprokit.core.shared.result_comparison import Difference

OUTPUT = Difference(0, "output", "values", "compiled")
ARGUMENT = Difference(0, "argument[0]", "values", "compiled")
GRADIENT = Difference(-1, "gradient of argument[0]", "values", "compiled")

COUNTED = Difference(0, "output[1][0]", "value", "compiled", expected="3", got="1")
"""A number that is no tensor."""

SIZES = "import torch\ndef f(x):\n    return x * 2, x.shape\nx = torch.ones(3, 1)\ntorch.compile(f)(x)\n"
PLAIN = "import torch\ndef f(x):\n    return x * 2\nx = torch.ones(3)\ntorch.compile(f)(x)\n"
NAMED = (
    "import torch\ndef f(x):\n    return x * 2\nx = torch.randn(3)\ng = torch.compile(f,"
    " dynamic=True)\nwith torch.no_grad():\n    out = g(x)\n"
)
HIDES = (
    "import torch\ndef f(x):\n    return x * 2\nx = torch.ones(3)\nf = torch.compile(f)\n"
    "out = f(x)\n"
)
GLOBAL = (
    "import torch\ndef f(x):\n    return x * w\nw = torch.ones(3)\nx ="
    " torch.ones(3)\ntorch.compile(f)(x)\n"
)
WRITES = (
    "import torch\ndef f(x):\n    x.mul_(2)\n    return x.sum() * 0\nx ="
    " torch.ones(3)\ntorch.compile(f)(x)\n"
)
LOOP = (
    "import torch\ndef f(x):\n    return x * 2\ng = torch.compile(f)\nfor x in (1, 2):\n    if x:\n"
    "        out = g(torch.ones(3) * x)\n"
)
BACKWARD = (
    "import torch\ndef f(x):\n    return x * 2\nx = torch.ones(3, requires_grad=True)\nout ="
    " torch.compile(f)(x)\nout.sum().backward()\n"
)
CHAINED = (
    "import torch\ndef f(x):\n    return x * 2\nx = torch.ones(3, requires_grad=True)\n"
    "torch.compile(f)(x).sum().backward()\n"
)
IN_LOSS = (
    "import torch\nimport torch.nn.functional as F\ndef f(x):\n    return x * 2\n"
    "x = torch.ones(2, 3, requires_grad=True)\n"
    "F.cross_entropy(torch.compile(f)(x).view(2, 3), torch.zeros(2, dtype=torch.int64)).backward()\n"
)
OF_GLOBAL_BUFFER = (
    "import torch\nnet = torch.nn.BatchNorm1d(3)\ndef f(x):\n    return net(x)\n"
    "x = torch.randn(4, 3)\ntorch.compile(net)(x)\nf(x)\n"
)
USED_UP = (
    "import torch\ndef f(x):\n    return x * next(steps)\nsteps = iter([2])\nx = torch.ones(3)\n"
    "torch.compile(f)(x)\n"
)
OF_GLOBAL_MODULE = (
    "import torch\nnet = torch.nn.Linear(3, 2)\ndef f(x):\n    return net(x)\nx = torch.ones(3)\n"
    "torch.compile(f)(x).sum().backward()\n"
)
OF_MODULE = (
    "import torch\nx = torch.ones(3)\nnet = torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
    "fast = torch.compile(net)\nfor _ in range(2):\n    net.zero_grad()\n"
    "    fast(x).sum().backward()\n"
)
EXPORTED = (
    "import torch\nmodule = torch.nn.Module()\nmodule.forward = lambda x: x * 2\nx ="
    " torch.randn(3)\nexported = torch.export.export(module, (x,))\nexported.module()(x)\n"
)
PRECOMPILED = (
    "import torch\ndef f(x):\n    return x * 2\nx = torch.ones(3)\nwith torch.no_grad():\n"
    "    print(torch.compile(f, fullgraph=True).aot_compile(((x,), {}))(x))\n"
)


class Entered:
    """A model that a fake compiler has compiled."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def module(self) -> Any:
        return self.call

    def aot_compile(self, inputs: Any) -> Any:
        return self.call


def run(text: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def enter(f: Any, *_: Any, **options: Any) -> Entered:
        return Entered(lambda *args: wrong(f, args))

    monkeypatch.setattr(torch, "compile", enter)
    monkeypatch.setattr(torch.export, "export", enter)
    exec(compile(text, "repro.py", "exec"), {})


def right(f: Any, args: Any) -> Any:
    return f(*args)


@pytest.mark.real
@pytest.mark.parametrize(
    ("text", "difference", "wrong"),
    [
        (PLAIN, OUTPUT, lambda f, args: f(*args) + 1),
        (NAMED, OUTPUT, lambda f, args: f(*args) + 1),
        (GLOBAL, OUTPUT, lambda f, args: f(*args) + 1),
        (HIDES, OUTPUT, lambda f, args: f(*args) + 1),
        (
            HIDES + "f(x)\n",
            Difference(1, "output", "values", "compiled"),
            lambda f, args: f(*args) + 1,
        ),
        (EXPORTED, OUTPUT, lambda f, args: f(*args) + 1),
        (PRECOMPILED, OUTPUT, lambda f, args: f(*args) + 1),
        (WRITES, ARGUMENT, lambda f, args: f(*args) + args[0].add_(1).sum() * 0),
        (BACKWARD, GRADIENT, lambda f, args: f(*args) * 2 - f(*args).detach()),
        (IN_LOSS, GRADIENT, lambda f, args: f(*args) * 2 - f(*args).detach()),
        (USED_UP, OUTPUT, lambda f, args: f(*args) + 1),
        (
            OF_GLOBAL_BUFFER,
            Difference(0, "buffer model.running_mean", "values", "compiled"),
            lambda f, args: f(f(*args)),
        ),
        (CHAINED, GRADIENT, lambda f, args: f(*args) * 2 - f(*args).detach()),
        (
            OF_GLOBAL_MODULE,
            Difference(3, "gradient of net.weight", "values", "compiled"),
            lambda f, args: f(*args) * 2,
        ),
        (
            OF_GLOBAL_MODULE.replace("net", "model"),
            Difference(0, "gradient of model.weight", "values", "compiled"),
            lambda f, args: f(*args) * 2,
        ),
        (
            OF_MODULE.replace("for _ in range(2):\n    net.zero_grad()\n    ", ""),
            Difference(0, "gradient of model.0.weight", "values", "compiled"),
            lambda f, args: f(*args) * 2,
        ),
        (
            "import torch\nx = torch.randn(4, 3)\nnet = torch.nn.BatchNorm1d(3)\n"
            "torch.compile(net)(x)\n",
            Difference(2, "buffer model.running_mean", "values", "compiled"),
            lambda f, args: f(f(*args)),
        ),
        (NAMED + "g(x)\n", OUTPUT, lambda f, args: f(*args) + 1),
        (NAMED + "print(g(x))\n", OUTPUT, lambda f, args: f(*args) + 1),
        (
            LOOP,
            Difference(1, "output", "values", "compiled"),
            lambda f, args: f(*args) + (args[0] > 1),
        ),
        (PLAIN, Difference(0, "output", "signed-zero", "compiled"), lambda f, args: -f(*args)),
        (SIZES, COUNTED, lambda f, args: (f(*args)[0], (1, 3))),
    ],
)
def test_the_check_fails_if_and_only_if_the_compiler_is_wrong(
    text: str, difference: Difference, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program fails with an assertion of torch, whichever value differs."""
    written = assertions.with_check(text, [difference])
    assert written != text
    run(written, right, monkeypatch)
    with pytest.raises(AssertionError):
        run(written, wrong, monkeypatch)


def test_a_global_that_one_method_has_as_an_argument_is_declared() -> None:
    """The variable of the function is the global that the other method reads."""
    text = (
        "import torch\nclass Jvp(torch.autograd.Function):\n    def forward(x):\n"
        "        return x\n    def jvp(ctx, dx):\n        return torch.zeros_like(x)\n"
        "def f(x):\n    return Jvp.apply(x)\nx = torch.ones(1)\ntorch.compile(f)(x)\n"
    )
    written = assertions.with_check(text, [OUTPUT])
    assert "def run(compile):\n    global x\n" in written


def test_what_is_left_of_a_generator_that_nothing_reads_is_no_part_of_the_program() -> None:
    """A reduction may leave a loss as a generator, of which only the call of the model runs."""
    text = PLAIN.replace(
        "torch.compile(f)(x)", "(t for t in torch.compile(f)(x) if t.requires_grad)"
    )
    written = assertions.with_check(text, [OUTPUT])
    assert "compile(f)(x)" in written and " for " not in written


def test_memory_that_only_one_run_shares_has_an_assertion() -> None:
    """Torch compares no aliasing. The wrong side may be either."""
    text = (
        "import torch\ndef f(x):\n    return x.add_(x), x.view_as(x)\nx = torch.ones(3)\n"
        "torch.compile(f)(x)\n"
    )
    own, shared = "memory of its own", "argument[0]"
    for expected, got in ((own, shared), (shared, own)):
        one = Difference(0, "output[1]", "aliasing", "unknown", expected=expected, got=got)
        checked = assertions.with_check(text, [one])
        assert "assert compiled == eager" in checked
        namespace: dict[str, Any] = {}
        program = checked.replace("run(torch.compile)", "run(lambda f: lambda x: (x, x.clone()))")
        with pytest.raises(AssertionError):
            exec(program, namespace)
        assert (namespace["compiled"], namespace["eager"]) == (False, True)
    other = Difference(0, "output[1]", "aliasing", "unknown", expected="output[0]", got=own)
    assert assertions.with_check(text, [other]) == text


@pytest.mark.parametrize(
    ("text", "name", "check"),
    [
        (CHAINED, "gradient of argument[0]", "assert (compiled is None) == (eager is None)"),
        (
            OF_GLOBAL_MODULE,
            "gradient of net.weight",
            "assert (compiled is None) == (eager is None)",
        ),
    ],
)
def test_a_gradient_of_only_one_run_has_an_assertion(text: str, name: str, check: str) -> None:
    """Torch compares no tensor with None."""
    assert check in assertions.with_check(text, [Difference(0, name, "missing", "compiled")])


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        (PLAIN + "torch.compile(f)(x)\n", OUTPUT),
        (
            OF_MODULE.replace("torch.compile(net)", "torch.compile(torch.nn.Linear(3, 2))"),
            Difference(0, "gradient of model.weight", "values", "compiled"),
        ),
        (
            OF_GLOBAL_BUFFER.replace("def f", "@torch.no_grad()\ndef f"),
            Difference(0, "buffer model.running_mean", "values", "compiled"),
        ),
        (CHAINED, Difference(0, "gradient of net.weight", "values", "compiled")),
        (
            OF_MODULE + "fast(x)",
            Difference(0, "gradient of model.weight", "values", "compiled"),
        ),
        (NAMED + "g(x)\n", ARGUMENT),
        (EXPORTED, ARGUMENT),
        (PRECOMPILED, ARGUMENT),
        (PLAIN, Difference(0, "output", "aliasing", "unknown")),
        (SIZES, dataclasses.replace(COUNTED, expected="'a'", got="'b'")),
    ],
)
def test_a_failure_without_an_assertion_leaves_the_program_unchanged(
    text: str, difference: Difference
) -> None:
    """Changed arguments of several calls, gradients of parameters and aliasing have no assertion: a
    wrong check is worse than none.
    """
    assert assertions.with_check(text, [difference]) == text


def test_random_programs_draw_the_numbers_of_eager() -> None:
    """Without this setting the check also fails with a correct compiler."""
    assert "fallback_random = True" in assertions.with_check(PLAIN, [OUTPUT], is_random=True)
    assert "manual_seed(0)" in assertions.with_check(NAMED, [OUTPUT])
    assert "manual_seed" not in assertions.with_check(PLAIN, [OUTPUT])
    assert "lambda f: torch.compile(f, dynamic=True)" in assertions.with_check(NAMED, [OUTPUT])


def test_silent_failures_become_errors() -> None:
    """A graph break, the recompile limit and too many recompiles become errors."""
    assert "torch.compile(f, fullgraph=True)(x)" in loud_failures.fail_loudly(PLAIN, "graph-break")
    unbroken = loud_failures.assert_unbroken(PLAIN)
    assert (
        "assert not any(" in unbroken
        and "'a graph breaks'" in unbroken
        and loud_failures.assert_unbroken(unbroken) == unbroken
    )
    limited = loud_failures.fail_loudly(PLAIN, "recompile-limit")
    assert (
        limited.index("import torch._dynamo")
        < limited.index("fail_on_recompile_limit_hit = True")
        < limited.index("def f")
    )
    counted = loud_failures.fail_loudly(PLAIN, "recompile-storm")
    assert (
        "['unique_graphs'] < 6, 'compiled again and again'" in counted
        and loud_failures.fail_loudly(counted, "recompile-storm") == counted
    )
