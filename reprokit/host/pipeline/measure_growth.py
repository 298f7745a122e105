"""Measure how the compile of a target grows with one of its integer parameters.

There is one run for each size, and a pack of the most informative one. The runs are sequential,
because parallel runs would share caches and clock frequency, and so change their times.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from reprokit.core.growth import costs
from reprokit.core.judge.stacks.evidence import main_stacks
from reprokit.core.records.observation import Missing
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.zoo import ZOO
from reprokit.host.pipeline import pipeline
from reprokit.host.pipeline.capture_result import CaptureResult
from reprokit.host.pipeline.state import Callbacks, Say, State, StudyTools
from reprokit.host.pipeline.step_runner import follow_steps
from reprokit.host.request.run_request import Request
from reprokit.host.run import run_directory, supervise
from reprokit.host.system import compiler_cache, deletion, files, interrupts
from reprokit.host.system.progress import OperationStatus
from reprokit.host.watch import stacks

LOOK_EVERY_S = 1.0
"""Interval between the stacks of the largest size; py-spy reads them without stopping the process.
"""


RUN_AND_JUDGE = (pipeline.RUN, pipeline.OBSERVE, pipeline.READ_PROBLEMS)
STUDY = (pipeline.OBSERVE, pipeline.LOCATE, *pipeline.LEAVE)


@dataclasses.dataclass(frozen=True)
class SizeRun:
    """The run of one size, judged, and its costs."""

    state: State
    cost: costs.PhaseCost


def full_size(request: Request, knob: str, sizes: Sequence[int]) -> int:
    """Return the size to predict: that of the zoo model, or a multiple of the largest size."""
    usual = ZOO[request.target.name].knobs.get(knob) if request.target.kind == "zoo" else None
    return usual if isinstance(usual, int) and usual > max(sizes) else costs.MULTIPLE * max(sizes)


def measure_growth(
    request: Request,
    knob: str,
    sizes: Sequence[int],
    at: int | None,
    output: Path | None,
    say: Say,
    show: supervise.Show | None = None,
    repeats: int = 1,
    show_status: Callable[[OperationStatus], None] | None = None,
) -> CaptureResult:
    """Run all sizes, the smallest first, and write the pack of the most informative one."""
    at = at or full_size(request, knob, sizes)
    calls = Callbacks(say, show, show_status=show_status)
    with interrupts.deferred():
        first = run_directory.create_run_directory(output, f"scale-{request.target.label}")
        run_dirs = itertools.chain([first], iter(first.create_next_run, None))
        try:
            ran: list[SizeRun] = []
            for size in sorted(sizes):
                looks = LOOK_EVERY_S if size == max(sizes) else 0.0
                sized_request = dataclasses.replace(
                    request, knobs={**request.knobs, knob: size}, look_every_s=looks
                )
                if (
                    not ran
                    and request.weights != "fake"
                    and not compiler_cache.kept_cache_folder(request.python).exists()
                ):
                    say(f"{knob}={size}, to fill the cache of the C++ compiler")
                    _run(sized_request, size, next(run_dirs), calls)
                    if interrupts.interrupt_has_come():
                        raise KeyboardInterrupt
                turns: list[SizeRun] = []
                while len(turns) < repeats and all(r.cost.is_used for r in turns):
                    run_dir = next(run_dirs)
                    again = f", turn {len(turns) + 1} of {repeats}" if repeats > 1 else ""
                    say(f"{knob}={size}, {len(ran) + 1} of {len(sizes)}{again}, in {run_dir.path}")
                    turns.append(_run(sized_request, size, run_dir, calls))
                    if interrupts.interrupt_has_come():
                        break
                ran.append(
                    dataclasses.replace(turns[-1], cost=costs.least_cost([r.cost for r in turns]))
                )
                cost = ran[-1].cost
                say(
                    f"{knob}={size}: {cost.verdict}, compile {cost.cpu_s:.1f} CPU-seconds,"
                    f" {cost.peak_rss_bytes / 1e6:.0f} MB"
                )
                if interrupts.interrupt_has_come():
                    break
            return _finish(ran, knob, at)
        except run_directory.NothingRan:
            first.delete_run()
            raise
        finally:
            first.release_lock()


def _run(
    request: Request, size: int, run_dir: run_directory.RunDir, callbacks: Callbacks
) -> SizeRun:
    """Run one size in a private compiler cache that has only what the C++ compiler probed.

    Without that cache, each size would take ten more seconds, in which the growth would not show.
    """
    cache, kept = run_dir.path / "warm", compiler_cache.kept_cache_folder(request.python)
    compiler_cache.copy_cache(kept, cache)
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(compiler_cache.plain_path(cache))}
    sized_request = dataclasses.replace(request, variables=variables, compares=False)
    quiet = dataclasses.replace(callbacks, say=lambda text: None)
    try:
        state = follow_steps(State(sized_request, run_dir, quiet, StudyTools()), RUN_AND_JUDGE)
        compiler_cache.keep_cache(cache, kept)
    finally:
        deletion.delete_path(cache, inside=cache.parent)
    verdict, seen = state.verdict, state.seen
    by_phase, by_pass = costs.costs_of_journals(
        state.journals.by_pid, state.ended.cpu_s, state.ended.cpu_by_pid
    )
    nodes: dict[str, int] = {}
    for graph in seen.graphs:
        nodes[graph.level] = nodes.get(graph.level, 0) + graph.nodes
    is_used = verdict.kind == "ok" and bool(seen.graphs)
    ended = "ok, with nothing compiled" if verdict.kind == "ok" and not is_used else verdict.kind
    cost = costs.PhaseCost(
        size,
        run_dir.path.name,
        ended,
        is_used,
        round(sum(by_phase.values()), 3),
        _rounded(by_phase),
        _rounded(by_pass),
        state.ended.peak_rss_bytes,
        nodes,
    )
    return SizeRun(dataclasses.replace(state, callbacks=callbacks), cost)


def _finish(ran: list[SizeRun], knob: str, at: int) -> CaptureResult:
    growth = costs.summarise_growth([r.cost for r in ran], knob, at)
    failed = [r for r in ran if not r.cost.is_used]
    # the stacks of a compile that reached its deadline show where it grows; other failures do not
    telling = [r for r in ran if r.cost.is_used or r.state.verdict.kind in ("slow-compile", "hang")]
    chosen = telling[-1] if growth["is_superlinear"] or not failed else failed[-1]
    is_interrupted = interrupts.interrupt_has_come()
    if is_interrupted:
        chosen = ran[-1]
    if growth["worst"]:
        growth["worst"]["frame"] = _frame(chosen, growth["worst"]["phase"])
    state = chosen.state.with_all_missing([Missing("size", row) for row in growth["left_out"]])
    try:
        files.write_json(state.run_path / run_names.GROWTH_FILE, growth)
    except OSError as problem:
        state = state.with_missing(run_names.GROWTH_FILE, problem.strerror or str(problem))
    ablation_steps = state.request.ablation_steps if state.request.minimizes else "none"
    request = dataclasses.replace(state.request, ablation_steps=ablation_steps)
    try:
        return pipeline.capture_result_of(
            follow_steps(
                dataclasses.replace(state, request=request, is_given_up=is_interrupted), STUDY
            )
        )
    finally:
        state.study.close()


def _frame(ran: SizeRun, phase: str) -> str:
    dumps = tuple(stacks.read_dumps(ran.state.run_path, max_rounds=stacks.MAX_ROUNDS_ON_DISK))
    return costs.place_of_growth(
        main_stacks(dataclasses.replace(ran.state.seen, dumps=dumps)), phase
    )


def _rounded(costs_by_name: dict[str, float]) -> dict[str, float]:
    return {
        name: round(cost, 4)
        for name, cost in sorted(costs_by_name.items(), key=lambda row: -row[1])
    }
