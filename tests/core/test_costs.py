"""Costs by phase are computed from a journal, and several of them give a law of growth."""

from __future__ import annotations

from typing import Any

from reprokit.core.growth import costs
from reprokit.core.growth.costs import PhaseCost
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Frame
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End, Exit, Process

GRAPHS = (GraphRecord(1, "dynamo", "0/0", 9, is_done=True),)


def event(ev: str, name: str, cpu: float, tid: int = 1) -> Event:
    return {"begin": Begin, "end": End}[ev](name=name, cpu=cpu, tid=tid)


def test_nested_events_cost_their_own_time() -> None:
    """The time of an outer event excludes that of its inner events, and importing, building and
    running do not count as compilation.
    """
    events = [
        event("begin", "stage:import", 0.0),
        event("end", "stage:import", 2.0),
        event("begin", "stage:call-0", 2.0),
        event("begin", "dynamo", 2.5),
        event("begin", "GraphLowering.run", 3.0),
        event("begin", "pass.x.y", 4.0),
        event("end", "pass.x.y", 4.5),
        event("end", "GraphLowering.run", 5.0),
        event("end", "dynamo", 5.25),
        event("end", "stage:call-0", 9.0),
        Exit(cpu_s=9.5),
    ]
    by_phase, by_pass = costs.costs_of_journals({7: events, 8: [Process()]}, 12.0, {})
    assert by_phase == {"dynamo-trace": 0.75, "lowering": 1.5, "fx-passes": 0.5, "cpp-build": 2.5}
    assert by_pass == {"dynamo": 0.75, "GraphLowering.run": 1.5, "pass.x.y": 0.5}


def test_two_threads_share_one_clock() -> None:
    """No second is counted twice, and the time before the event of a second thread belongs to the
    compiling thread.
    """
    events = [
        event("begin", "GraphLowering.run", 1.0),
        event("begin", "triton_key", 4.0, tid=2),
        event("end", "triton_key", 5.0, tid=2),
        event("end", "GraphLowering.run", 6.0),
    ]
    by_phase, _ = costs.costs_of_journals({7: events}, 6.0, {})
    assert by_phase["lowering"] == 4.0
    assert sum(by_phase.values()) <= 5.0


def test_an_open_event_and_a_cut_journal_are_no_error() -> None:
    """A run that was killed leaves phases open."""
    assert costs.costs_of_journals({7: [event("begin", "dynamo", 1.0), End()]}, 0.0, {}) == ({}, {})
    assert costs.costs_of_journals({}, 0.0, {}) == ({}, {})


def test_a_killed_process_is_charged_for_its_open_phase_and_a_finished_one_is_not() -> None:
    """After its last event, a killed process's CPU time belongs to its open phase; the time of
    other processes belongs to the C++ compiler.
    """
    open_ = [event("begin", "dynamo", 1.0), event("begin", "backend_compile", 1.5)]
    by_phase, by_pass = costs.costs_of_journals({7: open_}, 9.0, {"7": 7.5, "9": 1.5})
    assert (
        by_phase == {"dynamo-trace": 0.5, "backend": 6.0, "cpp-build": 1.5}
        and by_pass["backend_compile"] == 6.0
    )
    ended = [event("begin", "dynamo", 1.0), event("end", "dynamo", 2.0), Exit(cpu_s=2.0)]
    assert costs.costs_of_journals({7: ended}, 3.1, {"7": 3.1}) == (
        {"dynamo-trace": 1.0},
        {"dynamo": 1.0},
    )
    exits = [event("begin", "dynamo", 1.0), Exit(cpu_s=2.0)]
    assert costs.costs_of_journals({7: exits}, 3.0, {"7": 3.0}) == ({}, {})


def stack(*names: str) -> tuple[Frame, ...]:
    return tuple(
        Frame(f"torch/_inductor/{file}.py", function)
        for file, _, function in (n.partition(":") for n in names)
    )


def test_the_frame_is_the_innermost_that_the_phase_keeps() -> None:
    """Recursive and dispatching functions are not named, and stacks of other phases do not
    count.
    """
    deep = (
        "ir:loader",
        "ir:inner_fn_opcount",
        "ir:has_exceeded_max_reads",
        "graph:run",
        "compile_fx:compile_fx",
    )
    stacks = [
        stack("ir:load", "ir:loader", *deep),
        stack("ir:loader", "ir:loader", "ir:loader", *deep[1:]),
        stack(*deep[1:]),
        stack(*deep),
        stack("sizevars:simplify", *deep),
        stack("codegen/cpp:codegen_kernel", "scheduler:codegen"),
    ]
    assert costs.place_of_growth(stacks, "lowering") == "torch/_inductor/ir.py:loader"
    assert (
        costs.place_of_growth(stacks[1:3], "lowering") == "torch/_inductor/ir.py:inner_fn_opcount"
    )
    assert costs.place_of_growth(stacks, "guards") == ""


def series(law: Any, sizes: tuple[int, ...] = (4, 6, 8, 10)) -> list[PhaseCost]:
    costs_by_size = []
    for n in sizes:
        parts = {"lowering": law(n), "cpp-build": 4.0}
        costs_by_size.append(
            PhaseCost(
                n,
                f"run-{n:03d}",
                "ok",
                True,
                sum(parts.values()),
                parts,
                {"GraphLowering.run": law(n)},
                10**9,
                {"aten": 2 * n},
            )
        )
    return costs_by_size


def growth_observation(
    rows: list[PhaseCost], at: int, frame: str = "torch/_inductor/ir.py:has_exceeded_max_reads"
) -> Observation:
    growth = costs.summarise_growth(rows, "n", at)
    if growth["worst"]:
        growth["worst"]["frame"] = frame
    return Observation(exit_status=0, has_finished=True, graphs=GRAPHS, growth=growth)


def test_the_same_growth_has_the_same_signature_at_any_size() -> None:
    """Different sizes, a different speed and a different full size give the same signature."""
    titles = set()
    for speed, sizes, at in ((1, (4, 6, 8, 10), 12), (3, (5, 7, 8, 9), 40), (2, (6, 8, 9, 11), 11)):
        seen = growth_observation(
            series(lambda n, speed=speed: speed * (0.1 + 0.01 * 2.0**n), sizes), at
        )
        verdict = judge_run(seen)
        assert (verdict.kind, verdict.phase) == ("superlinear-compile", "lowering")
        assert verdict.cause == "exponential, x2.0 a step"
        titles.add(sign_verdict(verdict, seen).title)
    assert titles == {
        "superlinear-compile: lowering | exponential @ torch/_inductor/ir.py:has_exceeded_max_reads"
    }


def test_a_line_is_healthy_and_says_what_it_predicts() -> None:
    """The verdict is ok, and its sentence has the law."""
    seen = growth_observation(series(lambda n: 0.5 * n), 40)
    verdict = judge_run(seen)
    assert (
        verdict.kind == "ok" and "linear in n" in verdict.reason and "at n=40: 2" in verdict.reason
    )
    assert (
        seen.growth["worst"]["phase"] == "lowering"
        and seen.growth["worst"]["event"] == "GraphLowering.run"
    )
    assert sign_verdict(verdict, seen).title == "ok: no phase"


def test_a_phase_that_does_not_matter_is_no_verdict() -> None:
    """The phase grows faster than linearly, but at the full size it takes a tenth of a second
    beside minutes.
    """
    rows = series(lambda n: 0.05 * n**2.5, (1, 2, 4))
    heavy = [
        PhaseCost(**{**vars(c), "phases": {**c.phases, "cpp-build": 300.0 * c.size}}) for c in rows
    ]
    assert judge_run(growth_observation(heavy, 4)).kind == "ok"


def test_sizes_that_failed_are_reported_and_left_out() -> None:
    """The law is fitted to the remaining sizes, and needs at least three."""
    rows = series(lambda n: 0.1 + 0.01 * 2.0**n)
    late = PhaseCost(40, "run-040", "slow-compile", False, 3.0, {"lowering": 3.0})
    growth = costs.summarise_growth([*rows, late], "n", 40)
    assert growth["is_superlinear"] and growth["left_out"] == [
        "n=40 ended as slow-compile and is left out of the fit"
    ]
    assert any("slow-compile: left out of the fit" in row for row in growth["table"])
    few = costs.summarise_growth([*rows[:2], late], "n", 40)
    assert few["says"] == "2 of 3 sizes finished, and a law needs 3" and not few["is_superlinear"]


def test_a_small_phase_does_not_hide_a_large_one() -> None:
    """The largest certain cost at the full size decides which phase is the worst."""
    rows = series(lambda n: 0.2 + 0.01 * 1.9**n, (6, 8, 10, 11))
    rows = [
        PhaseCost(**{**vars(c), "phases": {**c.phases, "guards": 0.02 + 0.3 * (c.size == 11)}})
        for c in rows
    ]
    assert costs.summarise_growth(rows, "n", 44)["worst"]["phase"] == "lowering"


def test_the_least_of_several_runs_counts() -> None:
    """Load from other processes adds to some phase of each run, so the minimum counts; a failed run
    is not a measurement.
    """
    first = PhaseCost(
        4, "run-001", "ok", True, 6.0, {"lowering": 1.0, "aot": 5.0}, {}, 200, {"aten": 3}
    )
    second = PhaseCost(
        4, "run-002", "ok", True, 5.0, {"lowering": 3.0, "aot": 2.0}, {}, 100, {"aten": 3}
    )
    failed = PhaseCost(4, "run-003", "crash", False, 0.1, {"aot": 0.1})
    least = costs.least_cost([first, second, failed])
    assert (least.phases, least.cpu_s, least.peak_rss_bytes, least.is_used) == (
        {"lowering": 1.0, "aot": 2.0},
        3.0,
        100,
        True,
    )
    assert costs.least_cost([failed]).verdict == "crash"


def test_the_allowed_ratio_is_between_linear_growth_and_the_measured_growth() -> None:
    """A constant cost counts on both sides, however large it is: the slow start of a machine must
    not hide the growth.
    """
    for start_s in (0.0, 0.1, 0.3, 1.0):
        phases = [
            {"backend": 0.09, "dynamo-trace": start_s},
            {"backend": 2.43, "dynamo-trace": start_s},
        ]
        small, large = (
            PhaseCost(n, "", "ok", True, sum(p.values()), p)
            for n, p in zip((1, 4), phases, strict=True)
        )
        growth = costs.compare_growth(small, large, "n", {"backend"}, 2.0)
        assert growth["is_superlinear"]
        ratio = costs.allowed_ratio(growth, {"backend"}, 0.1)
        line = (start_s + 4 * 0.09) / max(small.cpu_s, 0.1)
        assert 1.2 * line < ratio < large.cpu_s / max(small.cpu_s, 0.1) / 1.2
