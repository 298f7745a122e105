"""A recorded graph is cut into independent programs. The graph is parsed from the text that the
agent writes.
"""

from __future__ import annotations

import ast

import pytest

from reprokit.core.reduce.graphs import graph_units, subgraph

SOURCE = '''"""dynamo graph 0/0"""
import torch
from torch.nn import *  # noqa


class Repro_cond_true_0(torch.nn.Module):
    def forward(self, l_x_):
        l_x__1 = l_x_
        sin = l_x__1.sin();  l_x__1 = None
        return (sin,)


class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cond_true_0 = Repro_cond_true_0()
        self._tensor_constant0 = torch.randn([3])

    def forward(self, s77 : torch.SymInt, L_x_ : torch.Tensor, L_w_ : torch.Tensor):
        l_x_ = L_x_
        l_self_parameters_weight_ = L_w_
        linear = torch._C._nn.linear(l_x_, l_self_parameters_weight_);  l_self_parameters_weight_ = None
        chunk = linear.chunk(2, 1);  linear = None
        getitem = chunk[0];  chunk = None
        x = getitem * 2;  getitem = None
        x += 1;  x_1 = x;  x = None
        x_1[0] = 3;  setitem = x_1;  setitem = None
        cond_true_0 = self.cond_true_0
        cond = torch.ops.higher_order.cond(True, cond_true_0, cond_true_0, (x_1,));  cond_true_0 = None
        x_2 = cond[0];  cond = None
        const = self._tensor_constant0
        add = x_2 + const;  const = None
        view = x_2.view(s77, -1);  x_2 = None
        return (view, add)
'''


def tensor(
    *shape: int,
    symbols: tuple[str | None, ...] = (),
    grad: bool = False,
    dtype: str = "torch.float32",
) -> dict[str, object]:
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return {
        "kind": "tensor",
        "shape": list(shape),
        "stride": stride[: len(shape)],
        "symbols": list(symbols) or [None] * len(shape),
        "dtype": dtype,
        "device": "cpu",
        "requires_grad": grad,
    }


VALUES = {
    "s77": {"kind": "symbol", "symbol": "s77", "value": 4},
    "l_x_": tensor(4, 6, symbols=("s77", None)),
    "l_self_parameters_weight_": tensor(8, 6, grad=True),
    "linear": tensor(4, 8, symbols=("s77", None)),
    "getitem": tensor(4, 4, symbols=("s77", None)),
    "x": tensor(4, 4),
    "x_1": tensor(4, 4),
    "x_2": tensor(4, 4),
    "add": tensor(4, 4),
    "view": tensor(4, 4),
}


def read(**settings: object) -> graph_units.GraphProgram:
    return graph_units.read_graph(SOURCE, VALUES, {"grad": True, **settings}, "dynamo", False)


def unit_of(graph: graph_units.GraphProgram, word: str) -> int:
    return next(i for i, unit in enumerate(graph.units) if word in unit.text)


def test_the_whole_graph_is_a_program_without_names_of_the_tracer() -> None:
    """Arguments have short names, weights keep their name, bodies become functions, and constants
    are beside the inputs.
    """
    graph = read()
    text = subgraph.program_of_units(graph, range(len(graph.units)))
    ast.parse(text)
    assert "L_x_" not in text and "self" not in text and "class " not in text
    assert "weight = torch.randn(8, 6, requires_grad=True)" in text
    assert "def true_fn0(" in text and "tensor_constant0 = torch.randn([3])" in text


def test_a_value_that_is_cut_off_becomes_an_argument_with_its_metadata() -> None:
    """For a single node, the operand becomes a new tensor with its shape and dtype, and nothing
    else remains.
    """
    graph = read()
    text = subgraph.program_of_units(graph, [unit_of(graph, "getitem * 2")])
    assert "torch.randn(4, 4)" in text and "linear" not in text and "cond" not in text
    assert text.count("torch.randn") == 1
    bare = subgraph.program_of_units(
        read(grad=False), [unit_of(graph, "getitem * 2")], is_bare=True
    )
    assert "no_grad" not in bare and "manual_seed" not in bare


def test_a_node_whose_value_cannot_be_an_argument_is_included() -> None:
    """A tuple cannot be an argument, so the node that produces it is included."""
    graph = read()
    text = subgraph.program_of_units(graph, [unit_of(graph, "chunk[0]")])
    assert ".chunk(2, 1)" in text


def test_sizes_that_were_symbolic_stay_so() -> None:
    """The symbol is read from the argument that has this size, and the size is marked as
    dynamic.
    """
    graph = read()
    text = subgraph.program_of_units(
        graph, [unit_of(graph, "_nn.linear"), unit_of(graph, ".view(")]
    )
    assert "s77 = " in text and ".shape[0]" in text and "mark_dynamic" in text
    assert "mark_dynamic" not in subgraph.program_of_units(read(dynamic=True), range(9))


def test_an_in_place_step_reads_what_it_changes() -> None:
    """``x += 1`` without the node before it gets its operand as an argument."""
    graph = read()
    text = subgraph.program_of_units(graph, [unit_of(graph, "+= 1")])
    assert "+= 1" in text and "torch.randn(4, 4)" in text


def test_a_constant_that_is_changed_in_place_keeps_its_local_name() -> None:
    """``step = self.step`` and ``step += 1``, as in a compiled optimizer, run without an
    UnboundLocalError.
    """
    source = SOURCE.replace("add = x_2 + const;", "const += 1;  add = x_2 + const;")
    graph = graph_units.read_graph(source, VALUES, {"grad": True}, "dynamo", False)
    text = subgraph.program_of_units(graph, [unit_of(graph, "+ const")])
    lines = [line.strip() for line in text.splitlines()]
    assert "const = tensor_constant0" in lines and "const += 1" in lines
    assert "tensor_constant0 += 1" not in lines


def test_a_constant_has_a_short_name() -> None:
    """The path on which Dynamo found the state of an optimizer is no name for a reader."""
    source = SOURCE.replace("_tensor_constant0", "optimizer___state_list_dict_keys_L__optimizer__")
    graph = graph_units.read_graph(source, VALUES, {"grad": True}, "dynamo", False)
    text = subgraph.program_of_units(graph, [unit_of(graph, "x_2 +")])
    assert "constant0 = torch.randn([3])" in text and "optimizer" not in text


def test_a_graph_with_a_number_out_of_a_tensor_is_one_graph_again() -> None:
    """Dynamo traces ``item`` only with a setting, which is on for an optimizer by itself."""
    source = SOURCE.replace("add = x_2 + const;", "item = x_2.sum().item();  add = x_2 + item;")
    graph = graph_units.read_graph(source, VALUES, {"grad": True}, "dynamo", False)
    text = subgraph.program_of_units(graph, [unit_of(graph, ".item()")])
    assert "torch._dynamo.config.capture_scalar_outputs = True" in text
    plain = subgraph.program_of_units(read(), range(9))
    assert "capture_scalar_outputs" not in plain


def test_settings_are_carried_over() -> None:
    """The backend, options, configuration, a custom pass and the grad mode are part of the
    program.
    """
    graph = read(
        grad=False,
        options={"max_autotune": "True"},
        sources=["def mine(graph):\n    return None"],
        configs=[["torch._inductor.config", "post_grad_custom_post_pass", "mine"]],
        backend="'eager'",
    )
    text = subgraph.program_of_units(graph, [0])
    for words in (
        "import torch._inductor.config",
        "def mine(graph)",
        "torch._inductor.config.post_grad_custom_post_pass = mine",
        "backend='eager'",
        "options={'max_autotune': True}",
        "with torch.no_grad():",
    ):
        assert words in text


def test_inputs_of_gigabytes_are_fake() -> None:
    """Metadata is enough to compile: the program uses fake tensors and allocates nothing."""
    rows = (
        "import torch\nclass Repro(torch.nn.Module):\n    def forward(self, a):\n        b = a +"
        " 1\n        return (b,)\n"
    )
    large = graph_units.read_graph(
        rows, {"a": tensor(1 << 16, 1 << 16), "b": tensor(1)}, {}, "dynamo", False
    )
    text = subgraph.program_of_units(large, [0])
    ast.parse(text)
    assert "with FakeTensorMode():" in text and "wrap_inductor_compiled_regions = True" in text
    small = graph_units.read_graph(rows, {"a": tensor(8), "b": tensor(1)}, {}, "dynamo", False)
    assert "Fake" not in subgraph.program_of_units(small, [0])


def test_training_runs_backward() -> None:
    """The loss is a sum of the outputs that need a gradient."""
    graph = graph_units.read_graph(SOURCE, VALUES, {"grad": True}, "dynamo", True)
    assert ".backward()" in subgraph.program_of_units(graph, [0])


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def f(: pass",
        "class Repro:\n    pass\n",
        "class Repro:\n    def forward(self): x = 1\n",
    ],
)
def test_other_sources_are_refused(source: str) -> None:
    """A truncated or foreign file raises Unreadable and no other error."""
    with pytest.raises(graph_units.Unreadable):
        graph_units.read_graph(source, {}, {}, "dynamo", False)


def test_cutting_a_large_graph_is_linear() -> None:
    """With five thousand nodes, the number of steps for each node is the same as with five
    hundred.
    """
    import sys

    def steps(nodes: int) -> int:
        rows = "\n".join(f"        v{i + 1} = torch.sin(v{i});  v{i} = None" for i in range(nodes))
        source = (
            f"import torch\nclass Repro(torch.nn.Module):\n    def forward(self, v0):\n{rows}\n    "
            f"    return (v{nodes},)\n"
        )
        graph = graph_units.read_graph(
            source, {f"v{i}": tensor(2) for i in range(nodes + 1)}, {}, "dynamo", False
        )
        count = 0

        def count_call(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(count_call)
        try:
            subgraph.program_of_units(graph, range(nodes))
        finally:
            sys.setprofile(None)
        return count

    assert steps(5000) < 14 * steps(500)


def test_the_kind_of_a_unit_has_no_names_and_numbers() -> None:
    """``relu = torch.relu(x)`` and ``tanh = torch.tanh(x)`` have different kinds; the same operator
    on other values has the same kind.
    """
    rows = "\n".join(
        f"        {n} = torch.{n.split('_')[0]}(l_x_)" for n in ("relu", "tanh", "relu_1")
    )
    source = (
        f"import torch\nclass Repro(torch.nn.Module):\n    def forward(self, l_x_):\n{rows}\n      "
        "  return (relu,)\n"
    )
    graph = graph_units.read_graph(source, VALUES, {}, "dynamo", False)
    first, different, again = (unit.kind for unit in graph.units)
    assert first == again == "_ = _.relu(_)" and different == "_ = _.tanh(_)"


def test_operators_of_the_user_are_known() -> None:
    """A custom operator without a recorded definition is named with the reason, and so is an
    autograd function without bodies; torch's operators are not.
    """
    rows = (
        "        a = torch.ops.mine.twice(l_x_)\n        b = torch.ops.aten.relu.default(l_x_)\n   "
        "     return (a, b)\n"
    )
    source = "import torch\nclass Repro(torch.nn.Module):\n    def forward(self, l_x_):\n" + rows
    graph = graph_units.read_graph(source, VALUES, {}, "dynamo", False)
    assert [graph.why_undefined(unit) for unit in graph.units] == [
        "mine::twice: its definition was not recorded",
        "",
    ]
    defined = graph_units.read_graph(
        source,
        VALUES,
        {},
        "dynamo",
        False,
        {"mine::twice": ["FACTOR = 2", "def twice(x):\n    return x * FACTOR"]},
    )
    assert not any(defined.why_undefined(unit) for unit in defined.units)
    program = subgraph.program_of_units(defined, [0])
    assert "FACTOR = 2" in program and "def twice(x):" in program
    assert "FACTOR" not in subgraph.program_of_units(defined, [1])
    applied = source.replace(
        "torch.ops.mine.twice(", "torch.ops.higher_order.autograd_function_apply(fwd, bwd, "
    )
    graph = graph_units.read_graph(applied, VALUES, {}, "dynamo", False)
    assert graph.why_undefined(graph.units[0]).startswith("autograd_function_apply: ")
