"""How a target's compile grows with one of its integers: a run for each size, the laws, and a pack
of the largest.

The runs are one after the other: two at once would disturb each other's caches and turbo, and so
their seconds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from reprokit.core.growth import costs
from reprokit.core.judge.stacks.evidence import main_stacks
from reprokit.core.records.observation import Missing
from reprokit.core.shared.zoo import ZOO
from reprokit.host.pipeline import pipeline
from reprokit.host.pipeline.capture_result import CaptureResult
from reprokit.host.pipeline.state import Callbacks, Say, State, StudyTools
from reprokit.host.pipeline.step_runner import follow_steps
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.system import compiler_cache, deletion, files, interrupts
from reprokit.host.system.progress import OperationStatus
from reprokit.host.watch import stacks

LOOK_EVERY_S = 1.0
"""How often stacks are taken of the largest size; py-spy reads them without stopping the
process.
"""


RUN_AND_JUDGE = (pipeline.RUN, pipeline.OBSERVE, pipeline.READ_PROBLEMS)
STUDY = (pipeline.OBSERVE, pipeline.LOCATE, *pipeline.LEAVE)


@dataclasses.dataclass(frozen=True)
class SizeRun:
    """One size, run and judged."""

    state: State
    cost: costs.PhaseCost


def full_size(request: Request, knob: str, sizes: Sequence[int]) -> int:
    """The size to predict: the zoo model's own, where that is larger than all that are run."""
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
    """Run all sizes, the smallest first, and leave the pack of the one that tells most."""
    at = at or full_size(request, knob, sizes)
    calls = Callbacks(say, show, show_status=show_status)
    with interrupts.deferred():
        first = run_directory.create_run(output, f"scale-{request.target.label}")
        places = itertools.chain([first], iter(first.another, None))
        try:
            ran: list[SizeRun] = []
            for size in sorted(sizes):
                looks = LOOK_EVERY_S if size == max(sizes) else 0.0
                asked = dataclasses.replace(
                    request, knobs={**request.knobs, knob: size}, look_every_s=looks
                )
                if (
                    not ran
                    and request.weights != "fake"
                    and not compiler_cache.kept_cache(request.python).exists()
                ):
                    say(f"{knob}={size}, to warm the C++ compiler up")
                    _run(asked, size, next(places), calls)
                    if interrupts.interrupt_has_come():
                        raise KeyboardInterrupt
                turns: list[SizeRun] = []
                while len(turns) < repeats and all(r.cost.is_used for r in turns):
                    place = next(places)
                    again = f", turn {len(turns) + 1} of {repeats}" if repeats > 1 else ""
                    say(f"{knob}={size}, {len(ran) + 1} of {len(sizes)}{again}, in {place.path}")
                    turns.append(_run(asked, size, place, calls))
                    if interrupts.interrupt_has_come():
                        break
                ran.append(
                    dataclasses.replace(turns[-1], cost=costs.least_cost([r.cost for r in turns]))
                )
                one = ran[-1].cost
                say(
                    f"{knob}={size}: {one.verdict}, compile {one.cpu_s:.1f} CPU-seconds,"
                    f" {one.peak_rss_bytes / 1e6:.0f} MB"
                )
                if interrupts.interrupt_has_come():
                    break
            return _finish(ran, knob, at)
        except run_directory.NothingRan:
            first.discard()
            raise
        finally:
            first.release()


def _run(request: Request, size: int, place: run_directory.RunDir, callbacks: Callbacks) -> SizeRun:
    """One size in a compiler cache of its own, which knows the answers of the C++ compiler and no
    graph.

    Without these each size would pay the same ten seconds and more, in which growth is lost.
    """
    cache, kept = place.path / "warm", compiler_cache.kept_cache(request.python)
    compiler_cache.copy_cache(kept, cache)
    asked = dataclasses.replace(
        request, variables={"TORCHINDUCTOR_CACHE_DIR": str(cache)}, compares=False
    )
    quiet = dataclasses.replace(callbacks, say=lambda text: None)
    try:
        state = follow_steps(State(asked, place, quiet, StudyTools()), RUN_AND_JUDGE)
        compiler_cache.keep_cache(cache, kept)
    finally:
        deletion.delete(cache, inside=cache.parent)
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
        place.path.name,
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
    told = costs.summarise_growth([r.cost for r in ran], knob, at)
    failed = [r for r in ran if not r.cost.is_used]
    # stacks of a compile that met its deadline are of where it grows; another failure is of
    # something else
    telling = [r for r in ran if r.cost.is_used or r.state.verdict.kind in ("slow-compile", "hang")]
    chosen = telling[-1] if told["is_superlinear"] or not failed else failed[-1]
    is_interrupted = interrupts.interrupt_has_come()
    if is_interrupted:
        chosen = ran[-1]
    if told["worst"]:
        told["worst"]["frame"] = _frame(chosen, told["worst"]["phase"])
    state = chosen.state.lacks_all([Missing("size", row) for row in told["left_out"]])
    try:
        files.write_json(state.run_path / observation_reader.GROWTH, told)
    except OSError as problem:
        state = state.lacks(observation_reader.GROWTH, problem.strerror or str(problem))
    rungs = state.request.rungs if state.request.minimizes else "none"
    request = dataclasses.replace(state.request, rungs=rungs)
    try:
        return pipeline.captured_of(
            follow_steps(
                dataclasses.replace(state, request=request, is_given_up=is_interrupted), STUDY
            )
        )
    finally:
        state.study.close()


def _frame(ran: SizeRun, phase: str) -> str:
    dumps = tuple(stacks.read_dumps(ran.state.run_path, most_rounds=stacks.MOST_LOOK_FILES))
    return costs.place_of_growth(
        main_stacks(dataclasses.replace(ran.state.seen, dumps=dumps)), phase
    )


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(cost, 4) for name, cost in sorted(found.items(), key=lambda row: -row[1])}
