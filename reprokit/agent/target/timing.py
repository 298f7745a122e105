"""How fast compiled calls are beside eager ones: blocks in turns, in one process, after a
warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...core.shared.contract import events
from ..record import journal

WARM_UPS = 2
MOST_BLOCKS = 40
LEAST_BLOCK_S = 0.02
"""A block repeats its calls until it takes so long: a clock and an interpreter measure no shorter
time well.
"""


def time_calls(
    torch: Any, eager: Callable[[], None], compiled: Callable[[], None], budget_s: float
) -> None:
    """Time ``eager`` and ``compiled`` in turns for ``budget_s``, and journal seconds a call as
    ``speed``.
    """
    for _ in range(WARM_UPS):
        eager()
        compiled()
    once = min(_timed(torch, eager, 1), _timed(torch, compiled, 1))
    repeats = max(1, int(LEAST_BLOCK_S / max(once, 1e-7)))
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    ends = time.monotonic() + budget_s
    while len(times["eager"]) < MOST_BLOCKS and (
        time.monotonic() < ends or len(times["eager"]) < 3
    ):
        times["eager"].append(_timed(torch, eager, repeats))
        times["compiled"].append(_timed(torch, compiled, repeats))
    journal.write(
        events.CallsTimed(eager=times["eager"], compiled=times["compiled"], repeats=repeats)
    )


def _timed(torch: Any, call: Callable[[], None], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats
