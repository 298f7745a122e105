"""The parts of the evidence that a run could not record."""

from __future__ import annotations

from pathlib import Path

from reprokit.core.records.observation import Missing
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import SimulationGapMet
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run.missing_evidence import find_missing
from reprokit.host.run.observation_reader import Journals


def test_each_refused_call_of_the_driver_is_missing_once(tmp_path: Path) -> None:
    """The symbol is named, however often the program called it."""
    symbols = ["torch.cuda.Stream", "torch._C._cuda_init", "torch.cuda.Stream"]
    met: list[Event] = [SimulationGapMet(symbol=symbol) for symbol in symbols]
    why = "it calls the CUDA driver, which reprokit does not simulate, so it raised an exception"
    assert find_missing(Journals({1: met}, 0, {}), tmp_path, Request(Target("file"))) == [
        Missing("simulation of torch.cuda.Stream", why),
        Missing("simulation of torch._C._cuda_init", why),
    ]
