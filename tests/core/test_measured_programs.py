"""A program gets its calls as a function, and a measurement that makes it fail by itself."""

from __future__ import annotations

import ast

import pytest

from reprokit.core.records.call_growth import GrowingSeries
from reprokit.core.records.speed import Ratio, Speed
from reprokit.core.reduce.measured_program import with_measurement, with_once
from reprokit.core.reduce.sized_program import with_smaller_tensors
from reprokit.core.shared.contract import growth_events
from reprokit.core.shared.contract.measured_kinds import MEMORY_GROWTH, PEAK_MEMORY, SLOWER

PROGRAM = """
import torch

def function(x):
    return x.sin() + OFFSET

torch.manual_seed(0)
OFFSET = 1
x = torch.randn(8)
total = 0
out = torch.compile(function)(x)
total = total + out.sum()
"""
SLOW = Speed("slower", Ratio(4.0, 3.5, 4.5, 100), eager_s=1e-6)


def grown(name: str, slope: float = 1.0, is_type: bool = False) -> GrowingSeries:
    return GrowingSeries(name, is_type, 0.0, 60 * slope, slope, slope, slope)


def once_of(text: str) -> str:
    """Return the function with the calls."""
    functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    return next(ast.unparse(f) for f in functions if f.name == "once")


def test_a_call_makes_its_inputs_where_their_memory_counts() -> None:
    """For a peak, the function has all but imports and definitions, and assigns what a definition
    reads.
    """
    once = once_of(with_once(PROGRAM, PEAK_MEMORY))
    assert "x = torch.randn(8)" in once and "torch.compile(function)(x)" in once
    assert once.splitlines()[1] == "    global OFFSET"


@pytest.mark.parametrize("kind", [MEMORY_GROWTH, SLOWER])
def test_many_calls_share_their_inputs_and_the_compiled_function(kind: str) -> None:
    """What stands before the first call is executed once; variables that calls change are
    global.
    """
    text = with_once(PROGRAM, kind)
    once = once_of(text)
    assert "compiled = torch.compile(function)\n" in text and "x = torch.randn(8)\n" in text
    assert "torch" not in once and "out = compiled(x)" in once
    assert "    global total" in once
    if kind == SLOWER:
        assert "sides = (function, compiled)" in text and once.startswith("def once(compiled):")


def test_a_call_of_a_function_that_calls_compiled_code_is_a_call() -> None:
    """A decorated function, and one that calls it, need no variable."""
    text = "import torch\n@torch.compile\ndef f(x): return x\ndef g(x): return f(x)\nx = 1\ng(x)\n"
    assert once_of(with_once(text, MEMORY_GROWTH)) == "def once():\n    g(x)"
    assert with_once(text, SLOWER) == "", "the eager function has no name"
    later = "import torch\ng = torch.compile(abs)\nx = torch.ones(2)\ng(x)\n"
    assert "sides = (abs, g)\n" in with_once(later, SLOWER)


def test_a_program_without_a_call_cannot_be_measured() -> None:
    """There is nothing to put into the function."""
    assert with_once("import torch\ndef f(x): return x\n", PEAK_MEMORY) == ""
    assert with_once("import torch\nf = torch.compile(abs)\n", MEMORY_GROWTH) == ""


def test_a_measured_program_stays_as_it_is() -> None:
    """The program of a pack, which has its measurement, is measured again by a replay."""
    for kind, more in ((PEAK_MEMORY, {}), (SLOWER, {"speed": SLOW})):
        measured = with_measurement(PROGRAM, kind, **more)
        assert measured != PROGRAM
        assert with_once(measured, kind) == with_measurement(measured, kind, **more) == measured


def test_a_peak_is_measured_with_torch_alone() -> None:
    """On a CPU by the profiler, on a GPU by the allocator; the limit is that of the verdict."""
    text = with_measurement(PROGRAM, PEAK_MEMORY)
    assert "profile_memory=True" in text and "assert compiled_peak <= 1.15 * eager_peak" in text
    on_gpu = with_measurement(PROGRAM.replace("(8)", "(8, device='cuda')"), PEAK_MEMORY)
    assert "torch.cuda.max_memory_allocated()" in on_gpu and "profile" not in on_gpu


def test_growth_is_counted_by_what_grows() -> None:
    """Tensors, types of objects and others have an expression each; what needs more has no
    assertion.
    """
    for name, is_type, counted in (
        (growth_events.TENSORS, False, "o.nbytes"),
        ("package.Node", True, "type(o).__name__ == 'Node'"),
        (growth_events.DESCRIPTORS, False, "/proc/self/fd"),
    ):
        assert counted in with_measurement(PROGRAM, MEMORY_GROWTH, grown(name, is_type=is_type))
    assert with_measurement(PROGRAM, MEMORY_GROWTH, grown(growth_events.HEAP)) == PROGRAM
    falling = with_measurement(PROGRAM, MEMORY_GROWTH, grown(growth_events.NONE, -100.0))
    assert "b >= a" in falling and "import sys" in falling and "import os" not in falling


def test_the_limit_of_a_ratio_of_times_is_far_from_both_sides() -> None:
    """It is the geometric mean of 1 and the measured ratio, and a block lasts half a
    millisecond.
    """
    text = with_measurement(PROGRAM, SLOWER, speed=SLOW)
    assert "assert compiled_s <= 2.0 * eager_s" in text and "number=500)" in text


def test_tensors_become_as_small_as_the_failure_allows() -> None:
    """The largest size is divided first, everywhere, and sizes below the limit stay."""
    text = "import torch\nx = torch.randn(16384, 256)\ny = x.view(16384, 16, 16)\nz = f(16384)\n"
    tried: list[str] = []

    def holds(program: str) -> bool:
        tried.append(program)
        return "randn(1024, " in program or "randn(256, " in program

    smaller = with_smaller_tensors(text, holds)
    assert smaller == text.replace("16384", "256")
    assert len(tried) == 2 + 3, "two divisors for 16384, and three that leave 8 of 256"
