"""Values that a program reads from outside are described by metadata."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reprokit.agent.serve import value_recorder
from reprokit.core.reduce.project import inner_calls, origins
from reprokit.core.shared.contract import run_names


def test_tensors_and_plain_values_are_described() -> None:
    """A tensor has no values in its description; integers have a range in which an index stays
    valid.
    """
    describe = value_recorder.describe
    parameter = torch.randn(2, 3, requires_grad=True)
    assert describe(torch.zeros(4)) == {
        "shape": [4],
        "dtype": "torch.float32",
        "is_float": True,
        "is_nonnegative": True,
        "requires_grad": False,
        "device": "cpu",
    }
    assert describe(parameter)["requires_grad"] and not describe(parameter * 2)["requires_grad"]
    assert describe(np.zeros((2, 2)))["is_array"]
    assert describe(torch.tensor([3, 100]))["range"] == [0, 64]
    assert describe(torch.tensor([-5, 0]))["range"] == [-4, 0]
    assert describe(torch.zeros(3, dtype=torch.int64))["range"] == [0, 0]
    assert describe([1, None, "a"]) == {"literal": "[1, None, 'a']"}
    settings = {"model": {"sizes": [1, 2], "name": "mixer"}, "rate": 0.1}
    assert describe(settings) == {"literal": repr(settings)}
    assert describe(True) == {"literal": "True"}


class Own:
    """A class that the program of the test defines."""


def test_only_definitions_of_the_program_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class of a library and other objects have no name in the program."""
    monkeypatch.setenv(run_names.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(value_recorder, "_known", {})
    main = types.ModuleType("__main__")
    main.__dict__.update(Own=Own, shown=repr)
    monkeypatch.setitem(sys.modules, "__main__", main)
    every = (Own, torch.nn.Linear, 7, Own())
    assert all(value_recorder.definition(n, one) is one for n, one in enumerate(every))
    rows = map(json.loads, (tmp_path / run_names.OUTSIDE_VALUES_FILE).read_text().splitlines())
    values = origins.read_values(rows).values
    assert values == {0: {"name": "Own"}, 1: {}, 2: {}, 3: {}}


def test_a_setting_is_noted_if_it_stays_the_same_plain_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter, a tensor, a list and a number with many digits have no value that is written."""
    monkeypatch.setenv(run_names.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(value_recorder, "_known", {})
    tensor = torch.zeros(2)
    for step in range(3):
        assert value_recorder.setting(0, 0.5) == 0.5 and value_recorder.setting(1, step) == step
        assert value_recorder.setting(2, tensor) is tensor and value_recorder.setting(3, [1]) == [1]
        assert value_recorder.setting(4, 2 / 21) == 2 / 21
    rows = map(json.loads, (tmp_path / run_names.OUTSIDE_VALUES_FILE).read_text().splitlines())
    assert origins.read_values(rows).values == {
        0: {"literal": "0.5"},
        **{number: {} for number in range(1, 5)},
    }


def test_the_recorded_calls_of_a_program_give_one_of_its_inner_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module in a module is made with the arguments of its ``__init__``, and with a dataclass."""
    program = """
import dataclasses, torch
@dataclasses.dataclass
class Size:
    width: int = 4
class Inner(torch.nn.Linear):
    def __init__(self, size, **more):
        super().__init__(3, size.width, **more)
    def forward(self, x):
        return super().forward(x)
class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)
def main():
    torch.compile(Outer(Inner(Size(), bias=False)))(torch.randn(8, 3))
main()
"""
    monkeypatch.setenv(run_names.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(torch, "compile", lambda function: function)
    for name in ("_known", "_made"):
        monkeypatch.setattr(value_recorder, name, {})
    monkeypatch.setattr(value_recorder, "_called", set())
    recording = origins.recording_program(program, needs_calls=True).replace(
        "from _reprokit.agent.serve", "from reprokit.agent.serve"
    )
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(recording, "program", "exec"), main.__dict__)
    rows = map(json.loads, (tmp_path / run_names.OUTSIDE_VALUES_FILE).read_text().splitlines())
    calls = origins.read_values(rows).calls
    inner = next(inner_calls.programs_of_calls(program, calls, "forward"))
    assert "inner = Inner(Size(width=4), bias=False)\n" in inner and "Outer" not in inner
    exec(compile(inner, "program", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "value",
    [
        object(),
        float("nan"),
        "x" * 1_000,
        [object()],
        (torch.zeros(2), object()),
        list(range(100)),
        torch.nn.Parameter(torch.zeros(2)),
        torch.zeros(0),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, 2).to_sparse(),
        np.array(["text"]),
        "/data/my project",
        ["a", "/data/my project"],
        {"data": {"path": "/data/my project"}},
    ],
    ids="object nan text objects batch list parameter empty complex sparse texts path paths settings".split(),
)
def test_what_no_expression_makes_has_no_description(value: Any) -> None:
    """Objects, long values, subclasses of a tensor and other layouts."""
    assert value_recorder.describe(value) == {}


def test_a_recording_program_records_its_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that differ between evaluations are not written; the variables of a loop are."""
    monkeypatch.setenv(run_names.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(value_recorder, "_known", {})
    monkeypatch.setattr(value_recorder, "_counts", {})
    monkeypatch.setattr(value_recorder, "_ran", set())
    program = (
        "import torch, json\n"
        "size = json.loads('4')\n"
        "for number in range(2):\n  for step, (x, name) in enumerate(zip(torch.arange(size * 3.0).split(size), json.loads('[1, 2, 3]'))):\n"
        "    print(x, name, step, number)\n"
    )
    monkeypatch.setattr(origins, "RECORDER_MODULE", "reprokit.agent.serve.value_recorder")
    exec(origins.recording_program(program), {})
    rows = map(json.loads, (tmp_path / run_names.OUTSIDE_VALUES_FILE).read_text().splitlines())
    recorded = origins.read_values(rows)
    count, variables = recorded.loops[0]
    assert count == 3 and variables["step"] == {"is_index": True} and variables["name"] == {}
    assert variables["x"]["shape"] == [4]
    assert {"literal": "4"} in recorded.values.values()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([torch.zeros(4, 2), torch.zeros(3, 2)], {"shape": [4, 2]}),
        ([torch.tensor([3, 40]), torch.tensor([0, 9])], {"range": [0, 8]}),
        ([torch.tensor([-9, 0]), torch.tensor([-3, 2])], {"range": [-2, 0]}),
        ([torch.tensor([-9]), torch.tensor([-3])], None),
        ([torch.zeros(4), torch.ones(4), -torch.ones(4)], {"is_nonnegative": False}),
        ([torch.zeros(4), torch.zeros(4, 1)], None),
        ([[torch.zeros(3), 5]] * 2, {"kind": "list"}),
        ([(torch.zeros(n), torch.tensor([-n])) for n in (8, 3)], None),
        ([(torch.tensor([0, n]), torch.zeros(n)) for n in (8, 4)], {"kind": "tuple"}),
        (
            [[torch.zeros(3), 5], [torch.zeros(3), 6]],
            {"parts": [value_recorder.describe(torch.zeros(3)), {"literal": "5"}]},
        ),
        ([[torch.zeros(3)], (torch.zeros(3),)], None),
        ([{"x": torch.zeros(n, 2)} for n in (4, 2)], {"kind": "dict"}),
        ([{"x": torch.zeros(2)}, {"y": torch.zeros(2)}], None),
        ([torch.zeros(4), torch.zeros(4, dtype=torch.int64)], None),
        ([3, 4], None),
    ],
)
def test_tensors_that_differ_are_described_together(
    values: list[Any],
    expected: dict[str, Any] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last batch is smaller, and labels differ; both stay valid as one description."""
    monkeypatch.setenv(run_names.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(value_recorder, "_known", {})
    for one in values:
        value_recorder.value(0, one)
    rows = map(json.loads, (tmp_path / run_names.OUTSIDE_VALUES_FILE).read_text().splitlines())
    described = origins.read_values(rows).values[0]
    assert described == ({} if expected is None else {**described, **expected})


BLOCKS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 2
    def extra_repr(self):
        return "unused"
    def forward(self, x):
        if self.training and x.dim() > 1:
            x = x + 1
        elif x.dim() > 5:
            raise ValueError(x)
        else:
            x = x + 3
        return x

def helper(x):
    return x
def report(x):
    return helper(x)
model = torch.compile(Model(), backend="eager")
hook = report
for step in range(0):
    print(step)
else:
    step = 5
try:
    y = model(torch.ones(2, 2))
except ValueError:
    y = report(step)
while y is None:
    y = helper(step)
print(y)
"""


def test_blocks_that_never_run_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch takes the place of its statement, and a function that is named keeps its head."""
    monkeypatch.setenv(run_names.RUN_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(value_recorder, "_ran", set())
    monkeypatch.setattr(origins, "RECORDER_MODULE", "reprokit.agent.serve.value_recorder")
    exec(origins.recording_program(BLOCKS), {})
    rows = map(json.loads, (tmp_path / run_names.OUTSIDE_VALUES_FILE).read_text().splitlines())
    tried: list[str] = []

    def test(text: str) -> bool:
        tried.append(text)
        return True

    text = origins.cut_program(BLOCKS, origins.read_values(rows), test)
    assert (
        text
        == """import torch

class Model(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.size = 2

    def forward(self, x):
        x = x + 1
        return x

def helper(x):
    pass

def report(x):
    pass
model = torch.compile(Model(), backend='eager')
hook = report
step = 5
try:
    y = model(torch.ones(2, 2))
finally:
    pass
print(y)
"""
        and len(tried) == 1
    )
