"""A recorded graph becomes a program with the definitions of the user's own code."""

from __future__ import annotations

import enum
import functools
import json
import math
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.cases.own_code_cases import KINDS
from reprokit.agent.record import graph_source
from reprokit.agent.record.definitions import own_operators
from reprokit.agent.record.definitions.definition_writer import DefinitionWriter
from reprokit.agent.record.definitions.graph_definitions import GraphDefinitions
from reprokit.agent.record.definitions.source_trees import NoText
from reprokit.agent.record.values import value_facts
from reprokit.agent.torch_hooks import operator_hooks
from reprokit.core.reduce.graphs import graph_units, subgraph

ON_CPU = [name for name, kind in KINDS.items() if not kind.options]


def program_of(script: str, name: str, folder: Path) -> str:
    """Run a script, and return the program of all units of the graph that it compiles."""
    graphs: list[graph_units.GraphProgram] = []

    def backend(gm: Any, inputs: Any) -> Any:
        definitions = GraphDefinitions(gm)
        facts = value_facts.describe_inputs(gm, inputs, definitions)
        source = graph_source.standalone_program(gm, facts, "dynamo", "0/0", definitions)
        values = value_facts.describe_values(gm, facts, definitions)
        recorded = json.loads(json.dumps([values, definitions.definitions, definitions.undefined]))
        graphs.append(
            graph_units.read_graph(source, recorded[0], {}, "dynamo", False, *recorded[1:])
        )
        return gm.forward

    file = folder / f"{name}.py"
    file.write_text(script)
    module = types.ModuleType(name)
    module.__dict__.update(__file__=str(file), recorder=backend)
    sys.modules[name] = module
    torch._dynamo.reset()
    exec(compile(script, str(file), "exec"), module.__dict__)
    graph = graphs[-1]
    assert not graph.undefined and not any(map(graph.why_undefined, graph.units))
    return subgraph.program_of_units(graph, range(len(graph.units)))


@pytest.fixture(scope="session")
def hooked() -> Iterator[None]:
    """Note the implementations of operators, as the agent does.

    An operator is registered once in a process, and pytest-xdist may run this module in parts, so
    the fixtures are those of the session.
    """
    real = torch.library.Library.impl
    operator_hooks.note_implementations()
    yield
    torch.library.Library.impl = real


@pytest.fixture(scope="session")
def programs(hooked: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the program of each kind that runs on a CPU. All of them run in one process."""
    folder = tmp_path_factory.mktemp("definitions")
    found, paths = {}, []
    for number, name in enumerate(ON_CPU):
        script = KINDS[name].program().replace("backend=picky", "backend=recorder")
        script = script.replace("range(75)", "range(1)")
        text = program_of(script, f"own_code_{number}", folder)
        found[name] = text
        paths.append(folder / f"program{number}.py")
        paths[-1].write_text(
            text.replace("torch.compile(repro", "torch.compile(repro, backend='eager'")
        )
    every = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path)\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", every, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize("name", ON_CPU)
def test_a_program_has_the_users_own_code(name: str, programs: dict[str, str]) -> None:
    """The program of each kind runs alone, and it contains what the user wrote."""
    assert KINDS[name].keeps in programs[name]


def test_helpers_constants_and_formulas_come_along(programs: dict[str, str]) -> None:
    """An operator keeps its helpers, its fake kernel and its autograd formula."""
    text = programs["custom_op"]
    for part in ("def clipped(x):", "-2.0", "math.sqrt(2.0)", "register_fake", "setup_context="):
        assert part in text, text


def test_an_operator_of_a_library_has_the_observed_metadata(hooked: None, tmp_path: Path) -> None:
    """The definition of an operator without Python code returns tensors with the recorded
    metadata, and sizes that come from arguments stay sizes of arguments.
    """
    script = """
import torch
lib = torch.library.Library("fromcpp", "DEF")
lib.define("pick(Tensor x, Tensor w, int n) -> (Tensor, Tensor)")
lib.m.impl("pick", "CompositeExplicitAutograd",
           lambda x, w, n: (x.new_empty(x.shape[0], w.shape[1], n, dtype=torch.int8), x.clone()), False)
def f(x, w):
    a, b = torch.ops.fromcpp.pick(x, w, 3)
    return a.sum() + b
torch.compile(f, backend=recorder)(torch.randn(4, 8), torch.randn(8, 6))
"""
    text = program_of(script, "own_code_cpp", tmp_path)
    assert "torch.empty((x.shape[0], w.shape[1], 3), dtype=torch.int8" in text
    assert "torch.empty_like(x)" in text and "def pick_as_observed(x, w, n):" in text


OFFSET = 7
SHARED = [1, 2]


def offset(x: float) -> float:
    return x + OFFSET


def made(by: int) -> Any:
    return lambda x: math.floor(x) * by + offset(x) + SHARED[0]


def test_closures_lambdas_and_modules_become_text() -> None:
    """Variables of enclosing functions, constants, helpers and modules are part of the text."""
    writer = DefinitionWriter()
    first, second = made(3), made(5)
    with writer.collect() as needed:
        texts = [writer.expression(f) for f in (first, second, functools.partial(offset, 1.0))]
    rows = "\n".join(writer.rows_for(needed))
    namespace: dict[str, Any] = {}
    exec(rows, namespace)
    values = [eval(text, namespace) for text in texts]
    assert [values[0](2.5), values[1](2.5), values[2]()] == [first(2.5), second(2.5), 8.0]


def test_two_definitions_have_two_names() -> None:
    """Functions with equal names are kept apart."""

    def make(number: int) -> Any:
        def helper() -> int:
            return number

        return helper

    writer = DefinitionWriter()
    with writer.collect() as needed:
        names = [writer.expression(make(n)) for n in (1, 2)]
    namespace: dict[str, Any] = {}
    exec("\n".join(writer.rows_for(needed)), namespace)
    assert names[0] != names[1] and [namespace[n]() for n in names] == [1, 2]


def test_what_has_no_text_is_refused() -> None:
    """An object with a state and a function that changes a global variable have no definition."""
    writer = DefinitionWriter()
    with pytest.raises(NoText, match="Generator"):
        writer.expression(torch.Generator())
    with pytest.raises(NoText, match="changes the global variable OFFSET"):
        writer.expression(counting)
    assert own_operators.qualified_name(torch.sin) == ""


def counting() -> None:
    global OFFSET
    OFFSET += 1


OWN: Any = types.ModuleType("own_package")


class Scale(enum.Enum):
    TWICE = 2


OWN.offset, OWN.numbers, OWN.Scale = offset, math, Scale


def uses_a_module(x: float) -> Any:
    return OWN.offset(x) + OWN.numbers.floor(2.5) * OWN.Scale.TWICE.value


def test_what_a_users_module_has_is_copied() -> None:
    """A program does not import the user's module: it has the definition of each function and class
    of it, and imports what the module imports from Python.
    """
    writer = DefinitionWriter()
    with writer.collect() as needed:
        name = writer.expression(uses_a_module)
    rows = "\n".join(writer.rows_for(needed))
    assert "OWN" not in rows and "import math" in rows and "def offset(x):" in rows, rows
    namespace: dict[str, Any] = {}
    exec(rows, namespace)
    assert namespace[name](1.0) == uses_a_module(1.0) == 12.0


def test_a_module_of_torch_is_imported_under_the_users_name() -> None:
    """It is imported once. A number distinguishes two modules with one name."""
    writer = DefinitionWriter()
    with writer.collect() as needed:
        names = [writer.expression(torch.autograd, "own") for _ in range(2)]
        names += [writer.expression(module) for module in (torch.autograd, torch.nn.functional)]
        names.append(writer.expression(torch.fft, "own"))
    assert names == ["own", "own", "own", "functional", "own_2"]
    rows = writer.rows_for(needed)
    assert len(rows) == 3
    namespace: dict[str, Any] = {}
    exec("\n".join(rows), namespace)
    assert namespace["own"] is torch.autograd and namespace["own_2"] is torch.fft
    assert namespace["functional"] is torch.nn.functional


def test_a_function_that_only_seems_to_be_public_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that a function names may have no such function."""
    monkeypatch.setattr(offset, "__module__", "math")
    writer = DefinitionWriter()
    with writer.collect() as needed:
        assert writer.expression(offset) == "offset"
    assert "def offset(x):\n    return x + 7" in writer.rows_for(needed)


def test_a_class_without_a_source_is_refused() -> None:
    """The reason names the class."""
    made = type("Made", (), {"method": offset})
    with pytest.raises(NoText, match="the source of Made cannot be read: "):
        DefinitionWriter().expression(made)


class Shy:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("do not look at me")


@pytest.fixture
def definitions_of() -> Iterator[Any]:
    """Return the definitions of a graph that calls an operator with a given implementation."""
    from torch._library import custom_ops

    name = "own_definitions::scale"

    def define(function: Any) -> GraphDefinitions:
        schema = "(Tensor x) -> Tensor"
        operator = torch.library.custom_op(name, function, mutates_args=(), schema=schema)
        graph = torch.fx.Graph()
        argument = graph.placeholder("x")
        graph.output(graph.call_function(operator._opoverload, (argument,)))
        return GraphDefinitions(torch.fx.GraphModule(torch.nn.Module(), graph))

    yield define
    custom_ops.OPDEF_TO_LIB.pop(name)._destroy()


def test_an_operator_without_a_gradient_is_its_implementation(definitions_of: Any) -> None:
    """The definition has no autograd formula and no fake kernel."""

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * OFFSET

    found = definitions_of(scale)
    assert found.undefined == {}
    (text,) = found.definitions["own_definitions::scale"]
    assert text.splitlines() == [
        "@torch.library.custom_op('own_definitions::scale', mutates_args=())",
        "def scale(x: torch.Tensor) -> torch.Tensor:",
        "    return x * 7",
    ]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (torch.Generator, "Generator cannot be written as Python text"),
        (Shy, "RuntimeError('do not look at me')"),
    ],
)
def test_an_operator_without_a_definition_has_a_reason(
    kind: Any, reason: str, definitions_of: Any
) -> None:
    """It uses an object with a state, or one that raises an error when it is inspected."""
    held = kind()

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x.clone() if held else x

    found = definitions_of(scale)
    assert found.undefined == {"own_definitions::scale": reason}
    assert found.definitions == {} and found.rows() == []
