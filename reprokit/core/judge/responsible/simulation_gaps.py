"""Recognise failures of a simulated run that come from gaps in reprokit's own simulation."""

from __future__ import annotations

import re

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Link
from reprokit.core.records.observation import Observation
from reprokit.core.shared.simulation import gap_in_message

CAUSE = "simulation-gap"
_ABSENT = re.compile(r"(?P<name>.+), compute capability [\d.]+, is not there")


def simulated_gpu_of(simulated: tuple[str, ...]) -> str:
    """Return the name of the simulated GPU in ``Observation.simulated``; empty if only ranks are
    simulated.
    """
    match = _ABSENT.fullmatch(simulated[0]) if simulated else None
    return match["name"] if match else ""


def gap_of_links(chain: tuple[Link, ...], is_gpu: bool) -> str:
    """Return the symbol that is not simulated, from the message of an exception or else the
    innermost function of torch; empty if the exception does not come from a gap.
    """
    for index in reversed(range(len(chain))):
        is_gap, symbol = gap_in_message(chain[index].message, is_gpu)
        if is_gap:
            return symbol or _innermost(chain[: index + 1])
    return ""


def gap_of_crash(seen: Observation) -> str:
    """Return the symbol that is not simulated, for a process that the C++ runtime ended; empty if
    no gap ended it.
    """
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
