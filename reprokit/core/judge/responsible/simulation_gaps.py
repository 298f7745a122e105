"""Gaps in reprokit's own simulation of a GPU: which failures of a simulated run are gaps, and the
symbol of each.
"""

from __future__ import annotations

import re

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Link
from reprokit.core.records.observation import Observation
from reprokit.core.shared.simulation import gap_in_message

CAUSE = "simulation-gap"
_ABSENT = re.compile(r"(?P<name>.+), compute capability [\d.]+, is not there")


def simulated_gpu_of(simulated: tuple[str, ...]) -> str:
    """The name of the GPU that ``Observation.simulated`` says is not there; empty where only ranks
    are simulated.
    """
    found = _ABSENT.fullmatch(simulated[0]) if simulated else None
    return found["name"] if found else ""


def gap_of_links(chain: tuple[Link, ...], is_gpu: bool) -> str:
    """The symbol that an exception is a gap for: the one its message names, or the innermost
    function of torch.
    """
    for place in reversed(range(len(chain))):
        is_gap, symbol = gap_in_message(chain[place].message, is_gpu)
        if is_gap:
            return symbol or _innermost(chain[: place + 1])
    return ""


def gap_of_crash(seen: Observation) -> str:
    """The same of a process that the C++ runtime ended."""
    is_gap, symbol = gap_in_message(fr.parse_terminate(seen.stderr_tail), is_gpu=True)
    if not is_gap:
        return ""
    frames = [f for fault in seen.faults for f in fault.frames]
    return symbol or _innermost((Link("", "", tuple(frames)),))


def _innermost(chain: tuple[Link, ...]) -> str:
    for link in reversed(chain):
        for frame in fr.normalise_frames(link.frames):
            if frame.file.startswith(("torch/", "triton/")):
                return fr.show_frame(frame)
    return "a function of C++ code"
