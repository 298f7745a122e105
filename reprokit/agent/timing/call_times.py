"""Time eager and compiled calls in turns."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ...core.shared.contract import events
from ..record import journal
from ..target import measure
from .instructions import InstructionCounter

WARM_UPS = 2
MIN_BLOCKS, MAX_BLOCKS = 3, 200
MIN_BLOCK_S = 0.003
"""A block repeats its calls for at least this time. It is as short as the time that a busy machine
gives a program at once, so that some blocks are not interrupted.
"""


@dataclass
class Side:
    """One way to make the calls, and what was measured of it."""

    call: Callable[[], None]
    surrounding: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    """The context in which a block of calls is made, which no measured time contains."""
    seconds: list[float] = field(default_factory=list)
    instructions: list[float] = field(default_factory=list)

    def time_block(self, repeats: int, counter: InstructionCounter | None = None) -> float:
        """Return the seconds of a call: the mean of ``repeats``, without the time in which this
        thread waited for a CPU that another program used.
        """
        with self.surrounding():
            counted = counter.read() if counter else 0
            waited, began, used = _cpu_wait_s(), time.perf_counter(), time.thread_time()
            for _ in range(repeats):
                self.call()
            measure.await_gpu()
            seconds, used = time.perf_counter() - began, time.thread_time() - used
            waited = _cpu_wait_s() - waited
            if counter and not counter.problem:
                self.instructions.append((counter.read() - counted) / repeats)
        # the kernel's clock of waits may run ahead of ours
        return max(seconds - waited, used) / repeats


def time_calls(eager: Side, compiled: Side, budget_s: float) -> None:
    """Time ``eager`` and ``compiled`` in turns for ``budget_s``: A B, B A, A B and so on.

    The seconds and the instructions of a call are journaled as ``speed``.
    """
    counter = InstructionCounter()
    take_turns(eager, compiled, MAX_BLOCKS, budget_s, counter)
    counter.close()
    journal.write_event(
        events.CallsTimed(
            eager=eager.seconds,
            compiled=compiled.seconds,
            eager_instructions=eager.instructions,
            compiled_instructions=compiled.instructions,
            no_instructions=counter.problem,
        )
    )


def take_turns(
    one: Side,
    other: Side,
    most_blocks: int,
    budget_s: float = math.inf,
    counter: InstructionCounter | None = None,
) -> None:
    """Add the times of blocks to both sides, until ``most_blocks`` or the end of ``budget_s``."""
    sides = (one, other)
    for side in sides:
        side.time_block(WARM_UPS)
    repeats = [max(1, int(MIN_BLOCK_S / max(side.time_block(1), 1e-7))) for side in sides]
    ends, blocks = time.monotonic() + budget_s, 0
    while blocks < most_blocks and (time.monotonic() < ends or blocks < MIN_BLOCKS):
        for number in (0, 1) if blocks % 2 else (1, 0):
            sides[number].seconds.append(sides[number].time_block(repeats[number], counter))
        blocks += 1


def typical(seconds: Sequence[float]) -> float:
    """Return the lower quartile, as the host does: other programs only ever add to a time."""
    return sorted(seconds)[len(seconds) // 4]


def _cpu_wait_s() -> float:
    """Return the seconds in which this thread was ready and waited for a CPU; 0 where the kernel
    does not tell.
    """
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
