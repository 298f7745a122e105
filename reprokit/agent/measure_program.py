"""Measure the function ``once`` of a program, which makes its calls, after the end of the program.

The sides are the program as it is, and the same calls in eager, through the stance of the compiler.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.shared import cuts
from ..core.shared.contract import events, measured_kinds, memory_record, run_names
from .record import journal

if TYPE_CHECKING:
    from .memory_meter import MakeCalls

KIND = os.environ.get(run_names.MEASURES_VARIABLE, "")
MEASURED_CALLS = 60
"""The calls of each side in which growth is looked for."""
MEASURE_S = 1.0
"""Seconds in which both sides are timed."""
_measure: Callable[[Callable[..., object]], None] | None = None


def install_measurement(kind: str = KIND, is_simulated: bool = False) -> None:
    """Prepare the measurement of a kind of verdict; nothing happens without one.

    With ``is_simulated``, the program gets fake tensors, and nothing is executed. Raises BadTarget
    for a torch that cannot do so.
    """
    global _measure
    if not kind:
        return
    if kind == measured_kinds.PEAK_MEMORY:
        from .memory_meter import MemoryMeter

        _measure = functools.partial(_measure_memory, MemoryMeter(), is_simulated)
        if is_simulated:
            _use_fake_tensors()
    elif kind == measured_kinds.MEMORY_GROWTH:
        _measure = _sample_calls
    elif kind == measured_kinds.SLOWER:
        from .timing import call_parts

        call_parts.prepare()
        _measure = _time_calls
    atexit.register(finish_measurement)


def finish_measurement() -> None:
    """Measure the program, unless it ended with an exception other than that of an assertion.

    It runs at the end of the program. Only the first call has an effect.
    """
    global _measure
    measure, _measure = _measure, None
    raised = getattr(sys, "last_value", None)  # the interpreter sets it
    once = getattr(sys.modules.get("__main__"), "once", None)
    if measure is None or once is None or not isinstance(raised, (AssertionError, type(None))):
        return
    try:
        measure(once)
    except Exception as problem:  # the program itself has ended
        journal.write_event(
            events.AgentProblem(hook="measurement", problem=cuts.cut_head(repr(problem), 500))
        )


def _use_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .torch_hooks import codegen_only

    codegen_only.stop_after_codegen()
    mode = FakeTensorMode()
    mode.cache_enabled = False  # it forgets which outputs of a graph are its inputs
    mode.__enter__()


def _measure_memory(meter: Any, is_fake: bool, once: Callable[[], object]) -> None:
    import torch

    gc.collect()
    calls = _marked_calls(once)
    with torch.compiler.set_stance("force_eager"):
        meter.measure(calls, (), is_fake, memory_record.EAGER_FOLDER)
    meter.measure(calls, (), is_fake)


def _sample_calls(once: Callable[[], object]) -> None:
    """Journal the samples of eager first, and then those of the compiled calls."""
    import torch

    from .target import call_samples

    def call(number: int) -> None:
        once()

    gc.freeze()  # what exists already, such as torch, does not grow, and is not counted each time
    with torch.compiler.set_stance("force_eager"):
        call_samples.sample_calls(call, MEASURED_CALLS, 1, False)
    call_samples.sample_calls(call, MEASURED_CALLS, 1, False)


def _time_calls(once: Callable[[Any], object]) -> None:
    """Journal the times of the eager and the compiled function, ``sides`` of the program."""
    import torch

    from .timing import call_parts, call_times

    eager, compiled = sys.modules["__main__"].__dict__["sides"]
    # a module may be compiled in place, so only the stance makes its calls eager
    in_eager = functools.partial(torch.compiler.set_stance, "force_eager")
    sides = (
        call_times.Side(lambda: _call(once, eager), in_eager),
        call_times.Side(lambda: _call(once, compiled)),
    )
    call_times.time_calls(*sides, MEASURE_S)
    call_parts.measure_parts(*sides)


def _call(once: Callable[[Any], object], function: Any) -> None:
    once(function)


def _marked_calls(once: Callable[[], object]) -> MakeCalls:
    """Return a function that makes the calls, and marks each backward pass in them."""
    import torch

    def make_calls(mark_backward: Callable[[Callable[[], object]], None]) -> None:
        depth = 0

        def marked(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def run(*args: Any, **kwargs: Any) -> Any:
                nonlocal depth
                if depth or torch.compiler.is_compiling():
                    return real(*args, **kwargs)
                results: list[Any] = []
                depth += 1
                try:
                    mark_backward(lambda: results.append(real(*args, **kwargs)))
                finally:
                    depth -= 1
                return results[0]

            return run

        reals: Any = torch.autograd.backward, torch.autograd.grad
        torch.autograd.backward, torch.autograd.grad = map(marked, reals)
        try:
            once()
        finally:
            torch.autograd.backward, torch.autograd.grad = reals

    return make_calls
