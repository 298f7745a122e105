"""What the agent measures of warm calls: instructions, guards, and the parts of a compiled call."""

from __future__ import annotations

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
from torch import nn
from torch._dynamo import guards
from torch._dynamo.output_graph import OutputGraph
from torch._inductor.codegen.cpp import CppScheduling

from reprokit.agent.timing import call_parts, call_times, guard_costs
from reprokit.agent.timing.instructions import InstructionCounter
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import CallParts, CallsTimed

TASK_CLOCK = (1, 1)
"""``PERF_TYPE_SOFTWARE`` and ``PERF_COUNT_SW_TASK_CLOCK``: virtual machines have it too."""


def test_a_counter_counts_or_says_why_not() -> None:
    """A counter of the kernel grows with the work of this process. One that the machine lacks gives
    a reason and no count.
    """
    counter = InstructionCounter(*TASK_CLOCK)
    before = counter.read()
    sum(range(200_000))
    assert counter.problem or counter.read() > before
    counter.close()
    refused = InstructionCounter(1, 9999)
    assert refused.problem and refused.read() == 0


class ManyNumbers(nn.Module):
    """A module with a guard for each number."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [float(number) for number in range(300)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x if weight > 1e9 else x + 0
        return x


def test_the_parts_of_a_call_have_names_and_lines(
    journaled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line with the slowest guards, the kernel with its operators and its line, and the
    operators of eager are recorded; both sides are timed in turns.
    """
    monkeypatch.setattr(guard_costs, "_trees", [])
    hooked = (
        (guards, "profile_guard_manager"),
        (OutputGraph, "_call_user_compiler"),
        (CppScheduling, "define_kernel"),
    )
    for owner, name in hooked:  # restored after the test
        monkeypatch.setattr(owner, name, getattr(owner, name))
    call_parts.prepare()
    model, x = ManyNumbers(), torch.randn(16)
    compiled = torch.compile(model)
    sides = [
        call_times.Side(lambda: model(x), torch.no_grad),
        call_times.Side(lambda: compiled(x), torch.no_grad),
    ]
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        call_times.time_calls(*sides, budget_s=0.2)
        call_parts.measure_parts(*sides)
    (timed,) = (e for e in journaled if isinstance(e, CallsTimed))
    assert len(timed.eager) == len(timed.compiled) >= 3
    assert len(timed.eager_instructions) == (0 if timed.no_instructions else len(timed.eager))
    (parts,) = (e for e in journaled if isinstance(e, CallParts))
    assert not parts.not_measured and parts.regions == 1
    assert parts.guards["line_guards"] >= 300 and parts.guards["code"].startswith(
        "L['self'].weights["
    )
    assert "test_timing.py:" in parts.guards["where"], parts.guards
    assert {p.kind for p in parts.parts} == {"guards", "kernel"}
    kernel = next(p for p in parts.parts if p.kind == "kernel")
    assert kernel.ops == ["add"] and kernel.where.startswith(f"{__file__}:"), kernel
    assert parts.eager_operators["add"] > 0
