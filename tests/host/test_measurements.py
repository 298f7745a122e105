"""What is measured of a candidate decides whether it has the failure of the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.memory_use import MemoryComparison, MemoryUse, PhaseUse
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.records.speed import Ratio, Speed
from reprokit.core.shared.contract import growth_events, memory_record
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import CallsTimed
from reprokit.core.shared.contract.growth_events import CallsSampled
from reprokit.core.shared.contract.measured_kinds import MEMORY_GROWTH, PEAK_MEMORY, SLOWER
from reprokit.core.shared.contract.memory_record import MemoryRecord, PhasePeak
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.minimize import cases
from reprokit.host.probe import measurements
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files

ASSERTION = Raised((Link("AssertionError", "2.00 times", ()),))
ENDS = [
    Observation(exit_status=0, is_command=True, graphs=(GraphRecord(0, "dynamo", "0/0", 3),)),
    Observation(exit_status=1, is_command=True, raised=ASSERTION),
]
"""A candidate, and the program of a pack, which fails by its own assertion."""


def journals(*events: Event) -> Journals:
    return Journals({1: list(events)}, 0, {})


def write_peak(folder: Path, peak: int) -> None:
    path = folder / memory_record.FOLDER
    path.mkdir(parents=True)
    record = MemoryRecord(source="lifetimes", peaks={"forward": PhasePeak(peak_bytes=peak)})
    files.write_json(path / memory_record.RECORD_FILE, to_json(record))


@pytest.mark.parametrize("seen", ENDS)
@pytest.mark.parametrize(
    ("eager", "compiled", "kind"),
    [
        (10_000_000, 20_000_000, "peak-memory"),
        (10_000_000, 17_000_000, ""),
        (100_000, 900_000, ""),
        (2_000_000, 4_000_000, "peak-memory"),
    ],
    ids="same smaller_ratio too_small small".split(),
)
def test_a_peak_needs_the_ratio_and_a_megabyte(
    tmp_path: Path, seen: Observation, eager: int, compiled: int, kind: str
) -> None:
    """The ratio must be at least 1.8 here, and the difference one megabyte instead of 64."""
    write_peak(tmp_path, compiled)
    write_peak(tmp_path / memory_record.EAGER_FOLDER, eager)
    seen = measurements.with_measurement(seen, tmp_path, journals(), PEAK_MEMORY, 1.8)
    assert (judge_run(seen).kind == "peak-memory") == bool(kind)


def sampled(slope: int) -> CallsSampled:
    at = list(range(12, 60, 2))
    return CallsSampled(
        calls=60, at=at, series={growth_events.TENSORS: [slope * n for n in at]}, types={}
    )


@pytest.mark.parametrize("seen", ENDS)
@pytest.mark.parametrize(("eager", "kind"), [(0, MEMORY_GROWTH), (64, "")])
def test_growth_counts_only_where_eager_has_none(
    tmp_path: Path, seen: Observation, eager: int, kind: str
) -> None:
    """The samples of eager are the first ones."""
    events = journals(sampled(eager), sampled(64))
    seen = measurements.with_measurement(seen, tmp_path, events, MEMORY_GROWTH, 1.0)
    assert (judge_run(seen).kind == MEMORY_GROWTH) == bool(kind)


@pytest.mark.parametrize("seen", ENDS)
@pytest.mark.parametrize(("ratio", "kind"), [(2.0, SLOWER), (1.5, ""), (1.0, "")])
def test_slow_calls_need_the_interval_and_the_ratio(
    tmp_path: Path, seen: Observation, ratio: float, kind: str
) -> None:
    """The ratio must be at least 1.6 here."""
    timed = CallsTimed(eager=[1e-3] * 20, compiled=[ratio * 1e-3] * 20)
    seen = measurements.with_measurement(seen, tmp_path, journals(timed), SLOWER, 1.6)
    assert (judge_run(seen).kind == SLOWER) == bool(kind)


def test_a_run_that_measured_nothing_has_no_such_failure(tmp_path: Path) -> None:
    """A program without calls, or one whose calls failed, is no candidate."""
    for kind in (PEAK_MEMORY, MEMORY_GROWTH, SLOWER):
        seen = measurements.with_measurement(ENDS[0], tmp_path, journals(), kind, 1.0)
        assert judge_run(seen).kind == "ok"


def test_a_candidate_keeps_a_share_of_the_ratio_of_the_original(tmp_path: Path) -> None:
    """80 % of what the ratio of peaks has above 1, and half of that of times."""

    def use(peak: int) -> MemoryUse:
        return MemoryUse(source="allocator", phases={"forward": PhaseUse(peak_bytes=peak)})

    memory = MemoryComparison(compiled=use(200), eager=use(100))
    speed = Speed("slower", Ratio(3.0, 2.8, 3.2, 60))
    for kind, seen, ratio in (
        (PEAK_MEMORY, Observation(memory=memory), 1.8),
        (SLOWER, Observation(speed=speed), 2.0),
        (MEMORY_GROWTH, Observation(), 1.0),
    ):
        verdict = Verdict(kind, None, "forward", "It is so.")
        case = cases.MinimizeCase(verdict, Signature("", "", 9), seen, tmp_path, "python")
        limits = cases.probe_limits_of(case)
        assert (limits.measures, limits.min_ratio) == (kind, ratio)


def test_what_is_measured_prints_nothing(tmp_path: Path) -> None:
    """To print a result takes time and memory that are not of the call."""
    source = "import torch\nwith torch.no_grad():\n    print(torch.compile(abs)(torch.ones(2)))\n"
    for kind, is_printed in ((SLOWER, False), (MEMORY_GROWTH, False), ("graph-break", True)):
        verdict = Verdict(kind, None, "forward", "It is so.")
        case = cases.MinimizeCase(
            verdict, Signature("", "", 9), Observation(), tmp_path, "python", source
        )
        assert all(("print" in s.text) == is_printed for s in cases.starting_points_of_case(case))
        assert cases.starting_points_of_case(case)
