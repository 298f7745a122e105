"""How many programs of a case may run at once follows from what they share."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psutil
import pytest

from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.host.minimize import cases

ON_CPU = "import torch\ntorch.compile(torch.sin)(torch.ones(2))\n"
ON_GPU = "import torch\ntorch.compile(torch.sin)(torch.ones(2, device='cuda:0'))\n"


def case_of(
    tmp_path: Path, source: str, kind: str = "exception", rss: int = 1
) -> cases.MinimizeCase:
    verdict = Verdict(kind, "codegen", "KeyError", "It was raised.")
    seen = Observation(peak_rss_bytes=rss)
    return cases.MinimizeCase(
        verdict, Signature("", "", 9), seen, tmp_path, "python", source, cores=8
    )


@pytest.mark.parametrize(
    ("source", "kind", "cores"),
    [(ON_CPU, "exception", 8), (ON_CPU, "oom", 1), (ON_GPU, "exception", 1)],
)
def test_programs_that_share_what_they_need_run_one_at_a_time(
    tmp_path: Path, source: str, kind: str, cores: int
) -> None:
    """They would fail where one of them alone does not."""
    assert case_of(tmp_path, source, kind).processes_at_once == cores


def test_programs_on_a_simulated_gpu_share_none(tmp_path: Path) -> None:
    """They need no device."""
    case = dataclasses.replace(case_of(tmp_path, ON_GPU), gpu={"name": "h100"})
    assert case.processes_at_once == 8


def test_programs_run_at_once_where_they_fit_in_memory(tmp_path: Path) -> None:
    """The run of the target needed a third of the free memory."""
    rss = psutil.virtual_memory().available // 3
    assert case_of(tmp_path, ON_CPU, rss=rss).processes_at_once in (1, 2)
    assert case_of(tmp_path, ON_CPU, rss=1 << 60).processes_at_once == 1


def test_the_graphs_of_a_case_are_read_once_for_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph of thousands of nodes takes seconds to read."""
    read: list[cases.MinimizeCase] = []
    real = cases.starting_points_of_case
    monkeypatch.setattr(
        cases, "starting_points_of_case", lambda case: read.append(case) or real(case)
    )
    server = cases.create_probe_server(case_of(tmp_path, ON_CPU))
    assert (len(read), server.at_once) == (1, 8)
