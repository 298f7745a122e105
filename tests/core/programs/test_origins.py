"""What a program reads from outside becomes a constant with the same metadata."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reprokit.core.reduce.project import origins

TENSOR = {"shape": [8, 4], "dtype": "torch.float32", "is_float": True}
INDICES = {"shape": [5], "dtype": "torch.int64", "is_float": False, "range": [0, 64]}
PROGRAM = """
import argparse
import numpy as np
import torch

args = argparse.ArgumentParser().parse_args()
raw = torch.from_numpy(np.load(args.data)).float()
f = torch.compile(torch.sin)
for step, x in enumerate(raw.split(args.size)):
    y = f(x)
    print(y.sum())
"""


_BLOCKS = "".join(f"if {n}:\n    pass\n" for n in range(origins.MIN_BLOCKS))
"""Blocks with which a program without values from outside is recorded."""


def loop_of(count: int, **variables: dict[str, object]) -> origins.RecordedValues:
    """Return the record of one loop."""
    return origins.RecordedValues({}, {0: (count, variables)})


def accept(*needed: str) -> Callable[[str], bool]:
    """Return a predicate that holds for programs with all of these texts."""
    return lambda text: all(word in text for word in needed)


def test_a_loop_over_data_becomes_a_loop_over_tensors() -> None:
    """The variables get values like the recorded ones, the index stays an index, and the files are
    not read any more.
    """
    recorded = loop_of(3, step={"is_index": True}, x=TENSOR)
    text = origins.cut_program(PROGRAM, recorded, accept("f(x)"))
    assert "for step in range(3):\n    x = torch.randn(8, 4)\n    y = f(x)" in text


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (TENSOR, "torch.randn(8, 4)"),
        ({**TENSOR, "dtype": "torch.float64"}, "torch.randn(8, 4, dtype=torch.float64)"),
        ({**TENSOR, "requires_grad": True}, "torch.randn(8, 4).requires_grad_()"),
        ({**TENSOR, "shape": []}, "torch.randn(())"),
        ({**TENSOR, "is_array": True}, "torch.randn(8, 4).numpy()"),
        ({**TENSOR, "device": "cuda:0"}, "torch.randn(8, 4).to('cuda:0')"),
        (INDICES, "torch.randint(0, 65, (5,), dtype=torch.int64)"),
        (
            {"shape": [2, 3], "dtype": "torch.bool", "is_float": False},
            "torch.ones(2, 3, dtype=torch.bool)",
        ),
        ({"literal": "'text'"}, "'text'"),
        (
            {"parts": [TENSOR, {"literal": "3"}], "kind": "tuple"},
            "(torch.randn(8, 4), 3)",
        ),
        ({"parts": [TENSOR], "kind": "tuple"}, "(torch.randn(8, 4),)"),
        (
            {
                "parts": [{"literal": "'x'"}, {"literal": "'y'"}, TENSOR, {"literal": "3"}],
                "kind": "dict",
            },
            "{'x': torch.randn(8, 4), 'y': 3}",
        ),
        ({"parts": [TENSOR], "kind": "list"}, "[torch.randn(8, 4)]"),
        ({"literal": "[1, 2.5, None]"}, "[1, 2.5, None]"),
    ],
)
def test_a_value_is_written_from_its_metadata(described: dict[str, object], expected: str) -> None:
    """No value of the user's data is written, except plain Python values."""
    program = "import torch, data\nx = data.get()\ntorch.compile(torch.sin)(x)\n"
    recorded = origins.RecordedValues({0: described}, {})
    text = origins.cut_program(program, recorded, accept("torch.compile"))
    assert f"x = {expected}\n" in text


@pytest.mark.parametrize(
    "described", [None, {}, {"shape": [2]}, {"literal": "'a"}, {"parts": [{}], "kind": "list"}]
)
def test_a_value_that_cannot_be_written_stays(described: dict[str, object] | None) -> None:
    """An object, a value that differs from call to call, and damaged rows leave the program."""
    program = "import torch, data\nx = data.get()\ntorch.compile(torch.sin)(x)\n"
    recorded = origins.RecordedValues({0: described} if described is not None else {}, {})
    assert origins.cut_program(program, recorded, lambda text: True) == program


def test_only_what_the_failure_allows_is_replaced() -> None:
    """If not all values at once, each half is tried; what is inside of a replaced expression is not."""
    program = "import torch, data\nx = data.a(data.b())\ny = data.c()\nf(x, y)\n"
    tried: list[str] = []

    def test(text: str) -> bool:
        tried.append(text)
        return "data.c()" in text

    every = {number: {"literal": str(number)} for number in range(8)}
    text = origins.cut_program(program, origins.RecordedValues(every, {}), test)
    assert "x = 0\n" in text and "y = data.c()" in text
    assert not any("data.a(" in one and "data.b()" not in one for one in tried)


def test_one_value_that_is_needed_costs_few_probes() -> None:
    """Of 32 values one must stay; the others are replaced by halves."""
    rows = "".join(f"x{i} = data.get({i})\n" for i in range(32))
    tried: list[str] = []

    def test(text: str) -> bool:
        tried.append(text)
        return "data.get(21)" in text

    every = {number: {"literal": "1"} for number in range(100)}
    program = f"import torch, data\n{rows}torch.compile(torch.sin)(x1)\n"
    text = origins.cut_program(program, origins.RecordedValues(every, {}), test)
    assert text.count("data.get(") == 1 and "x21 = data.get(21)" in text
    assert len(tried) <= 14  # one at a time: 32


def test_a_setting_becomes_its_value() -> None:
    """An attribute that was always the same plain value is replaced, also in a class; a counter and
    a constant of a module stay.
    """
    program = """
import math, torch
class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.rate, self.steps = config.rate, 0
    def forward(self, x):
        self.steps += 1
        return x * self.rate * math.pi + self.steps
if True:
    config = Config(0.5)
"""
    recording = origins.recording_program(program + _BLOCKS)
    numbers = {
        name: int(recording.split(f", {name})")[0].rpartition("setting(")[2])
        for name in ("config.rate", "self.rate", "self.steps")
    }
    assert "math.pi)" not in recording
    values: dict[int, dict[str, object]] = {
        numbers["config.rate"]: {"literal": "0.5"},
        numbers["self.rate"]: {"literal": "0.5"},
        numbers["self.steps"]: {},
    }
    text = origins.cut_program(program, origins.RecordedValues(values, {}), lambda text: True)
    assert "(0.5, 0)" in text
    assert "return x * 0.5 * math.pi + self.steps" in text


def test_many_settings_cost_few_probes() -> None:
    """Of 64 settings each second one must stay: 15 programs are tried, and all settings stay."""
    rows = "".join(f"x{i} = config.n{i}\n" for i in range(64))
    program = f"import torch\n{rows}torch.compile(torch.sin)(x1)\n"
    tried: list[str] = []

    def test(text: str) -> bool:
        tried.append(text)
        return all(f"config.n{i}\n" in text for i in range(0, 64, 2))

    every = {number: {"literal": "1"} for number in range(64)}
    text = origins.cut_program(program, origins.RecordedValues(every, {}), test)
    assert text.count("config.n") == 64 and len(tried) == 15
    assert "config.n" not in origins.cut_program(
        program, origins.RecordedValues(every, {}), lambda text: True
    )


def test_values_in_compiled_code_are_replaced_last() -> None:
    """An expression in a class or a compiled function may be replaced, but not its result."""
    program = """
from __future__ import annotations
import json, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * json.loads("2")
@torch.compile
def g(x):
    return x + len(json.dumps(1))
def read(path):
    return torch.load(path)
def main():
    model = torch.compile(Model())
    y = model(read("x"))
    return y.sum() + g(y)
main()
"""
    copy = origins.recording_program(program)
    assert copy.startswith("from __future__ import annotations\n")
    compiled = copy[copy.index("class Model") : copy.index("def read")]
    assert compiled.count(f"{origins.RECORDER}.ran") == 2
    assert f"model({origins.RECORDER}.value(" in copy and "y.sum()" in copy
    asked: list[str] = []
    every = {number: {"literal": "7"} for number in range(99)}

    def test(text: str) -> bool:
        asked.append(text)
        return "read('x')" not in text

    text = origins.cut_program(program, origins.RecordedValues(every, {}), test)
    assert "return x * 7" in text and "return x + 7" in text and "model(7)" in text
    assert "json.loads('2')" in asked[0] and "model(7)" in asked[0]


def test_a_program_of_torch_alone_has_nothing_to_record() -> None:
    """No run is made for it."""
    program = "import math, torch\nx = torch.randn(3)\ntorch.compile(torch.sin)(x * math.pi)\n"
    assert origins.recording_program(program) == ""


@pytest.mark.parametrize("count", [0, 65, 10_000])
def test_a_loop_with_many_iterations_stays(count: int) -> None:
    """A loop that did not run, or ran too often to be repeated in a repro, is not changed."""
    recorded = loop_of(count, step={"is_index": True}, x=TENSOR)
    assert origins.cut_program(PROGRAM, recorded, lambda text: True) == PROGRAM


def test_a_later_row_replaces_an_earlier_one() -> None:
    """The recorder writes an empty description if a value differs from its first one."""
    rows = [
        {"what": "value", "number": 1, "described": {"literal": "1"}},
        {"what": "value", "number": 1, "described": {}},
        {"what": "iterations", "number": 0, "count": 1},
        {"what": "iterations", "number": 0, "count": 2},
    ]
    recorded = origins.read_values(rows)
    assert recorded.values == {1: {}} and recorded.loops == {0: (2, {})}


REGISTRY = """
import torch
CLASSES = {}
def register(cls):
    CLASSES[cls.__name__] = cls
    return cls
@register
class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin()
def build(name):
    kind = CLASSES.get(name)
    return CLASSES[name]()
def first(items):
    return items[0]
def main():
    torch.compile(build(first(["Net"])))(torch.ones(3))
main()
"""


def test_a_class_that_is_looked_up_is_named() -> None:
    """A registry with decorators is not needed for a class that the program defines."""
    recording = origins.recording_program(REGISTRY)
    assert f"{origins.RECORDER}.definition(1, CLASSES[name])()" in recording
    recorded = origins.RecordedValues({0: {"name": "Net"}, 1: {"name": "Net"}, 2: {}}, {})
    text = origins.cut_program(REGISTRY, recorded, lambda text: True)
    assert "kind = Net" in text and "return Net()" in text and "items[0]" in text


BOXES = {"shape": [2, 4], "dtype": "torch.float32", "is_float": True, "is_nonnegative": True}


def test_increasing_numbers_are_tried_where_random_ones_do_not_do() -> None:
    """The corners of a box must be sorted, and random numbers are not."""
    parts = {"parts": [{"literal": "'boxes'"}, BOXES], "kind": "dict"}
    program = "import torch, data\nx = data.get()\ntorch.compile(torch.sin)(x)\n"
    recorded = origins.RecordedValues({0: parts}, {})
    text = origins.cut_program(program, recorded, accept("arange"))
    assert "{'boxes': torch.arange(8.0).reshape(2, 4)}" in text
    text = origins.cut_program(program, recorded, accept("randn"))
    assert "{'boxes': torch.randn(2, 4)}" in text
    for_loop = loop_of(3, step={"is_index": True}, x=BOXES)
    assert "x = torch.arange(8.0)" in origins.cut_program(PROGRAM, for_loop, accept("arange"))


@pytest.mark.parametrize("described", [TENSOR, INDICES, {**INDICES, "range": [4, 64]}])
def test_no_function_draws_numbers_where_results_are_compared(described: dict[str, object]) -> None:
    """A function may be compiled, and compiled code draws other numbers than eager."""
    program = (
        "import torch, data\ndef f(x):\n    return x + data.get()\ntorch.compile(f)(data.get())\n"
    )
    recorded = origins.RecordedValues({0: described, 2: described}, {})
    text = origins.cut_program(program, recorded, lambda text: True, compares=True)
    function, _, call = text.partition("torch.compile")
    assert "data.get()" not in text and "rand" in call
    assert "rand" not in function and ("torch.arange(32.0)" in function) == (
        "range" not in described
    )
    text = origins.cut_program(program, recorded, lambda text: True)
    assert text.count("rand") == 2


def test_integers_are_zero_where_random_ones_do_not_do() -> None:
    """A label that means no class, such as 255, makes the range too large."""
    program = "import torch, data\nx = data.get()\ntorch.compile(torch.sin)(x)\n"
    recorded = origins.RecordedValues({0: INDICES}, {})
    text = origins.cut_program(program, recorded, accept("zeros"))
    assert "x = torch.zeros(5, dtype=torch.int64)" in text
    asked: list[str] = []
    single = origins.RecordedValues({0: {**INDICES, "range": [0, 0]}}, {})
    origins.cut_program(program, single, lambda text: bool(asked.append(text)))
    assert not any("zeros" in text for text in asked)


def test_what_can_be_negative_is_not_made_increasing() -> None:
    """No further candidate is tried for it."""
    asked: list[str] = []
    recorded = loop_of(3, step={"is_index": True}, x={**BOXES, "is_nonnegative": False})
    assert origins.cut_program(PROGRAM, recorded, lambda text: bool(asked.append(text))) == PROGRAM
    assert asked and not any("arange" in text for text in asked)


def test_a_program_of_torch_alone_reads_nothing_from_outside() -> None:
    """A file, a library and the command line are outside."""
    assert origins.reads_from_outside(PROGRAM)
    assert origins.reads_from_outside("import timm\nm = timm.create_model('x')\n")
    assert not origins.reads_from_outside("import torch\nprint(torch.randn(3))\n")
