"""How a target's compile grows with one of its integers: a run for each size, the laws, and a pack of the largest.

The runs are one after the other: two at once would disturb each other's caches and turbo, and so their seconds.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ..core import costs
from ..core.records import Missing, Observation, Verdict
from ..core.signature import main_stacks
from ..core.zoo import ZOO
from . import capture, files, interrupts, observe, run, rundir, stacks, warmth
from .capture import Say
from .captured import Captured
from .launch import Request
from .oracle import Standing
from .run import Outcome
from .study import Study

LOOK_EVERY_S = 1.0
"""How often stacks are taken of the largest size; py-spy reads them without stopping the process."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """One size, run and judged."""

    request: Request
    place: rundir.RunDir
    outcome: Outcome
    journals: observe.Journals
    seen: Observation
    verdict: Verdict
    cost: costs.Cost
    missing: tuple[Missing, ...]


def full_size(request: Request, knob: str, sizes: Sequence[int]) -> int:
    """The size to predict: the zoo model's own, where that is larger than all that are run."""
    usual = ZOO[request.target.name].knobs.get(knob) if request.target.kind == "zoo" else None
    return usual if isinstance(usual, int) and usual > max(sizes) else costs.MULTIPLE * max(sizes)


def scale(
    request: Request, knob: str, sizes: Sequence[int], at: int | None, output: Path | None, say: Say,
    show: run.Show | None = None, repeats: int = 1, show_status: Callable[[Standing], None] | None = None,
) -> Captured:  # fmt: skip
    """Run all sizes, the smallest first, and leave the pack of the one that tells most."""
    at = at or full_size(request, knob, sizes)
    with interrupts.held():
        first = rundir.create(output, f"scale-{request.target.label}")
        places = itertools.chain([first], iter(first.another, None))
        try:
            ran: list[Ran] = []
            for size in sorted(sizes):
                looks = LOOK_EVERY_S if size == max(sizes) else 0.0
                asked = dataclasses.replace(request, knobs={**request.knobs, knob: size}, look_every_s=looks)
                if not ran and request.weights != "fake" and not warmth.kept(request.python).exists():
                    say(f"{knob}={size}, to warm the C++ compiler up")
                    if _run(asked, size, next(places), show).outcome.is_interrupted:
                        raise KeyboardInterrupt
                turns: list[Ran] = []
                while len(turns) < repeats and all(r.cost.is_used for r in turns):
                    place = next(places)
                    again = f", turn {len(turns) + 1} of {repeats}" if repeats > 1 else ""
                    say(f"{knob}={size}, {len(ran) + 1} of {len(sizes)}{again}, in {place.path}")
                    turns.append(_run(asked, size, place, show))
                ran.append(dataclasses.replace(turns[-1], cost=costs.least([r.cost for r in turns])))
                one = ran[-1].cost
                say(
                    f"{knob}={size}: {one.verdict}, compile {one.cpu_s:.1f} CPU-seconds, {one.peak_rss_bytes / 1e6:.0f} MB"
                )
                if ran[-1].outcome.is_interrupted:
                    break
            return _finish(ran, knob, at, say, show_status)
        except rundir.NothingRan:
            first.discard()
            raise
        finally:
            first.release()


def _run(request: Request, size: int, place: rundir.RunDir, show: run.Show | None) -> Ran:
    """One size in a compiler cache of its own, which knows the answers of the C++ compiler and no graph.

    Without these each size would pay the same ten seconds and more, in which growth is lost.
    """
    cache, kept = place.path / "warm", warmth.kept(request.python)
    warmth.copy(kept, cache)
    asked = dataclasses.replace(request, variables={"TORCHINDUCTOR_CACHE_DIR": str(cache)})
    try:
        outcome = capture.run_target(asked, place.path, show, None, lambda text: None)
        warmth.keep(cache, kept)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    journals = observe.read_journals(place.path)
    capture.refuse_bad_target(journals, place.path)
    missing = [*outcome.missing]
    seen = capture.look_back(request, outcome, place.path, journals, missing)
    verdict = capture.judged(seen, missing)
    by_phase, by_pass = costs.of_journals(journals.by_pid, outcome.cpu_s, outcome.cpu_by_pid)
    nodes: dict[str, int] = {}
    for graph in seen.graphs:
        nodes[graph.level] = nodes.get(graph.level, 0) + graph.nodes
    is_used = verdict.kind == "ok" and bool(seen.graphs)
    ended = "ok, with nothing compiled" if verdict.kind == "ok" and not is_used else verdict.kind
    cost = costs.Cost(
        size, place.path.name, ended, is_used, round(sum(by_phase.values()), 3), _rounded(by_phase),
        _rounded(by_pass), outcome.peak_rss_bytes, nodes,
    )  # fmt: skip
    return Ran(request, place, outcome, journals, seen, verdict, cost, tuple(missing))


def _finish(ran: list[Ran], knob: str, at: int, say: Say, show_status: Callable[[Standing], None] | None) -> Captured:
    told = costs.summarise([r.cost for r in ran], knob, at)
    failed = [r for r in ran if not r.cost.is_used]
    # stacks of a compile that met its deadline are of where it grows; another failure is of something else
    telling = [r for r in ran if r.cost.is_used or r.verdict.kind in ("slow-compile", "hang")]
    chosen = telling[-1] if told["is_superlinear"] or not failed else failed[-1]
    if ran[-1].outcome.is_interrupted:
        chosen = ran[-1]
    if told["worst"]:
        told["worst"]["frame"] = _frame(chosen, told["worst"]["phase"])
    missing = [*chosen.missing]
    path = chosen.place.path / observe.GROWTH
    capture.attempt(observe.GROWTH, missing, lambda: files.write_json(path, told), None)
    seen = capture.look_back(chosen.request, chosen.outcome, chosen.place.path, chosen.journals, missing)
    verdict = capture.judged(seen, missing)
    missing += [Missing("size", row) for row in told["left_out"]]
    study = Study(chosen.request, verdict, seen, chosen.journals, chosen.place, missing, say, show_status)
    if chosen.request.minimizes and not ran[-1].outcome.is_interrupted:
        capture.examine(study)
    return capture.finish(study, chosen.outcome)


def _frame(ran: Ran, phase: str) -> str:
    dumps = tuple(stacks.read(ran.place.path, most_rounds=stacks.MOST_LOOK_FILES))
    return costs.place(main_stacks(dataclasses.replace(ran.seen, dumps=dumps)), phase)


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(cost, 4) for name, cost in sorted(found.items(), key=lambda row: -row[1])}
