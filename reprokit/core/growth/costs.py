"""The cost of a compile by phase, from the journals of a run, and its growth over several runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reprokit.core.growth import laws
from reprokit.core.growth.laws import Growth, fit_law
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import phases
from reprokit.core.records.dumps import Frame
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End, Exit
from reprokit.core.shared.contract.serialize import SCHEMA, to_json

CHILDREN = "cpp-build"
"""The phase of other processes that work for the compiler: g++, compile workers."""
MAX_PASSES = 12
MIN_SIZES = 3
FLOOR_S = 0.05
"""A cost below this is noise."""
MULTIPLE = 4
"""The predicted size, as a multiple of the largest that was run, if neither the user nor the zoo
gives a full size.
"""
MIN_RISE_BYTES = 100e6
MIN_RISE_SHARE = 0.05
"""The share by which the cost must grow until the full size to determine the law of the whole."""
MIN_SHARED = 0.6
"""The share of a phase's stacks that must contain a frame to locate the growth in it."""
DISPATCH = frozenset(
    {"_default", "__call__", "fn", "run", "run_node", "call_function", "call_method"}
)
"""Functions that call any other function, so they do not locate a cost."""


@dataclass(frozen=True)
class PhaseCost:
    """The cost of one run of a target at one size."""

    size: int
    run: str
    """The name of its run directory."""
    verdict: str
    is_used: bool
    """The run finished, so its costs are those of the whole compile."""
    cpu_s: float
    """CPU seconds of the compile, with other processes that worked for it, and without importing,
    building and running the target.
    """
    phases: dict[str, float] = field(default_factory=dict)
    passes: dict[str, float] = field(default_factory=dict)
    """By innermost event, such as ``GraphLowering.run`` or
    ``pass.post_grad_passes.stable_sort``.
    """
    peak_rss_bytes: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    """Graph nodes by level, over all graphs."""


def costs_of_journals(
    by_pid: Mapping[int, Iterable[Event]], cpu_s: float, cpu_by_pid: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return CPU seconds by compiler phase and by event. ``cpu_s`` is the CPU time of the whole
    process tree, and ``cpu_by_pid`` that of single processes.

    The time of an event is the time in which it was the innermost. The clock is that of the
    process. The time between two events belongs to the thread that wrote the second, or, if that
    has no open event, to the thread that has one. The time after the last event belongs to the open
    events. The time after the exit event does not count.
    """
    by_phase: dict[str, float] = {}
    by_event: dict[str, float] = {}
    own = 0.0
    for pid, events in by_pid.items():
        stacks: dict[int, list[str]] = {}
        before, is_down = 0.0, False
        gone = (End(cpu=cpu_by_pid[str(pid)]),) if str(pid) in cpu_by_pid else ()
        for event in itertools.chain(events, gone):
            if not isinstance(event, (Begin, End, Exit)):
                continue
            cpu, is_down = (
                event.cpu_s if isinstance(event, Exit) else event.cpu,
                is_down or isinstance(event, Exit),
            )
            stack = stacks.setdefault(event.tid, [])
            charged = (
                [] if is_down else stack or next((s for s in reversed(stacks.values()) if s), [])
            )
            phase = phases.phase_of_events(charged)
            if phase and phase[0] in phases.COMPILE_PHASES and cpu > before:
                by_phase[phase[0]] = by_phase.get(phase[0], 0.0) + cpu - before
                by_event[charged[-1]] = by_event.get(charged[-1], 0.0) + cpu - before
            own, before = own + max(cpu - before, 0.0), max(cpu, before)
            if isinstance(event, Begin):
                stack.append(event.name)
            elif isinstance(event, End) and event.name in stack:
                while stack.pop() != event.name:
                    pass
    if cpu_s > own:
        by_phase[CHILDREN] = by_phase.get(CHILDREN, 0.0) + cpu_s - own
    return by_phase, by_event


def least_cost(costs: Sequence[PhaseCost]) -> PhaseCost:
    """Combine several runs at one size: other work on the machine only adds cost, so the minimum
    of each phase counts.
    """
    used = [c for c in costs if c.is_used]
    if len(used) < 2:
        return used[0] if used else costs[-1]
    by_phase = {name: min(c.phases.get(name, 0.0) for c in used) for c in used for name in c.phases}
    by_pass = {name: min(c.passes.get(name, 0.0) for c in used) for c in used for name in c.passes}
    return replace(
        used[-1],
        cpu_s=round(sum(by_phase.values()), 3),
        phases=by_phase,
        passes=by_pass,
        peak_rss_bytes=min(c.peak_rss_bytes for c in used),
    )


def costs_of_part(by_phase: Mapping[str, float], part: Collection[str]) -> float:
    """Return the CPU seconds of the phases of one part of the compiler."""
    return sum(by_phase.get(name, 0.0) for name in part)


def compare_growth(
    low: PhaseCost, high: PhaseCost, knob: str, part: Collection[str], ratio: float
) -> dict[str, Any]:
    """Return a result like that of :func:`summarise_growth` for two sizes of a candidate.

    It is superlinear if ``part`` costs at least ``ratio`` times as much at the larger size. Two
    sizes do not determine a law.
    """
    first, second = costs_of_part(low.phases, part), costs_of_part(high.phases, part)
    phase = max(part, key=lambda name: high.phases.get(name, 0.0))
    return {
        "knob": knob,
        "is_superlinear": second >= ratio * max(first, FLOOR_S),
        "sizes": [_row(low), _row(high)],
        "says": f"compile of {second:.2f} s at {knob}={high.size}, {first:.2f} s at {low.size}",
        "left_out": [],
        "table": [],
        "worst": {
            "phase": phase,
            "law": "",
            "words": "steeper than linear",
            "frame": "",
            "event": "",
        },
    }


def geometric_midpoint(low: float, line: float, high: float) -> float:
    """Return the geometric mean of ``line``, the healthy cost, and ``high``, as a multiple of
    ``low``.
    """
    return math.sqrt(line * high) / low


def allowed_ratio(growth: Mapping[str, Any], part: Collection[str], floor_s: float) -> float:
    """Return the largest cost of a compile that is allowed at the larger of two sizes, as a
    multiple of the cost at the smaller; ``growth`` is a result of :func:`compare_growth`.

    It is the geometric mean of the measured cost and of the cost with a linear growth of ``part``.
    Costs that do not grow, such as the start of the compiler, are in both.
    """
    low, high = growth["sizes"]
    first, second = costs_of_part(low["phases"], part), costs_of_part(high["phases"], part)
    line = max(first, FLOOR_S) * high["size"] / low["size"]
    return geometric_midpoint(
        max(float(low["cpu_s"]), floor_s), high["cpu_s"] - second + line, high["cpu_s"]
    )


def place_of_growth(stacks: Sequence[Sequence[Frame]], phase: str) -> str:
    """Return the innermost frame that most of the normalised stacks in ``phase`` share; empty if
    there is none.

    A recursive function is at many depths; its outermost frame counts.
    """
    depths: dict[str, list[int]] = {}
    count = 0
    for stack in stacks:
        by_frame = phases.phase_of_frames(stack)
        if by_frame is None or by_frame[0] != phase:
            continue
        kept = [
            f
            for f in fr.RULES.significant_frames(stack, len(stack))[0]
            if (phases.phase_of_frames((f,)) or ("",))[0] == phase
        ]
        count += bool(kept)  # empty for an import of the compiler's own modules
        for name, depth in {fr.show_frame(f): len(kept) - i for i, f in enumerate(kept)}.items():
            if name.rsplit(":", 1)[-1] not in DISPATCH:
                depths.setdefault(name, []).append(depth)
    shared = {
        name: sorted(d)[len(d) // 2] for name, d in depths.items() if len(d) >= MIN_SHARED * count
    }
    return max(shared, key=lambda name: (shared[name], name), default="")


def summarise_growth(costs: Sequence[PhaseCost], knob: str, at: int) -> dict[str, Any]:
    """Return the contents of ``growth.json``: the measurements, the law of each phase, and the
    predictions for the size ``at``.
    """
    used = sorted((c for c in costs if c.is_used), key=lambda c: c.size)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "knob": knob,
        "at": at,
        "is_superlinear": False,
        "worst": None,
        "total": None,
        "memory": None,
        "sizes": [_row(c) for c in sorted(costs, key=lambda c: c.size)],
        "phases": [],
        "passes": [],
        "table": [],
        "left_out": [
            f"{knob}={c.size} ended as {c.verdict} and is left out of the fit"
            for c in costs
            if not c.is_used
        ],
    }
    if len(used) < MIN_SIZES:
        report["says"] = f"{len(used)} of {len(costs)} sizes finished, and a law needs {MIN_SIZES}"
        return report
    growths = {
        name: fit_law([(c.size, c.phases.get(name, 0.0)) for c in used], at)
        for c in used
        for name in c.phases
    }
    value, low, high, can_tell = laws.add_growths(list(growths.values()))
    whole = fit_law([(c.size, c.cpu_s) for c in used], at)
    memory = fit_law(
        [(c.size, float(c.peak_rss_bytes)) for c in used], at, laws.FLOOR_BYTES, MIN_RISE_BYTES
    )
    last = used[-1]
    law = _leading_growth(growths, last) or whole
    sums = {
        "predicted": round(value, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "can_tell": can_tell,
    }
    report["total"] = {**whole.to_json(), "law": law.law, "words": law.words, **sums}
    report["memory"] = {**memory.to_json(), "grew": last.peak_rss_bytes - used[0].peak_rss_bytes}
    order = sorted(growths, key=lambda name: -growths[name].predicted)
    report["phases"] = [
        {"phase": n, "costs": [c.phases.get(n, 0.0) for c in used], **growths[n].to_json()}
        for n in order
    ]
    for name in sorted(last.passes, key=lambda n: -last.passes[n])[:MAX_PASSES]:
        row = [(c.size, c.passes.get(name, 0.0)) for c in used]
        report["passes"].append(
            {"pass": name, "costs": [cost for _, cost in row], **fit_law(row, at).to_json()}
        )

    def badness(name: str) -> tuple[bool, float]:
        growth = growths[name]
        # by the lower end: the wide interval of a small phase must not hide a large phase
        return growth.is_superlinear and laws.is_material(growth, low), growth.low

    worst = max(growths, key=badness)
    inside = [n for n in last.passes if (phases.phase_of_events([n]) or ("",))[0] == worst]
    report["is_superlinear"] = badness(worst)[0]
    report["worst"] = {
        "phase": worst,
        "law": growths[worst].law,
        "words": growths[worst].words,
        "frame": "",
        "event": max(inside, key=lambda n: last.passes[n], default=""),
    }
    report["says"] = _sentence(used, knob, growths[worst], worst, report)
    report["table"] = _table(report, used)
    return report


def _leading_growth(growths: Mapping[str, Growth], last: PhaseCost) -> Growth | None:
    """Return the growth of the part that determines the law of the whole: the largest part of the
    law that adds most until the full size; None if the whole hardly grows.
    """
    rises = {
        name: max(growth.predicted - last.phases.get(name, 0.0), 0.0)
        for name, growth in growths.items()
    }
    by_law = {law: sum(rises[n] for n in growths if growths[n].law == law) for law in laws.PRICES}
    law = max(by_law, key=lambda name: by_law[name])
    if by_law[law] < MIN_RISE_SHARE * last.cpu_s:
        return None
    return growths[max((n for n in growths if growths[n].law == law), key=lambda n: rises[n])]


def amount_in_words(row: Mapping[str, Any], unit: str = "s") -> str:
    """Return a prediction in words: ``32 s (25 to 41)``, or its lower end if the interval is too
    wide.
    """
    scale, digits = (1e6, 0) if unit == "MB" else (1.0, 1)
    value, low, high = (row[n] / scale for n in ("predicted", "low", "high"))
    if row["can_tell"]:
        digits = digits if value < 100 else 0
        return f"{value:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"
    return (
        f"cannot tell (over {low:.{digits}f} {unit})"
        if low * scale < laws.MAX_COST / 1e3
        else "without bound"
    )


def _table(report: Mapping[str, Any], used: Sequence[PhaseCost]) -> list[str]:
    """Return the measurements and the laws as lines of text, for the terminal, the issue and the
    report.
    """
    rows = [f"{report['knob']:>16} {'compile':>10} {'memory':>10} {'nodes':>7} {'a node':>9}"]
    for size in report["sizes"]:
        nodes = size["nodes"].get("aten") or size["nodes"].get("dynamo") or 0
        each = f"{size['cpu_s_per_node'] * 1e3:.1f} ms" if size["cpu_s_per_node"] else ""
        end = "" if size["is_used"] else f"  {size['verdict']}: left out of the fit"
        rows.append(
            f"{size['size']:>16} {size['cpu_s']:>8.1f} s {size['peak_rss_bytes'] / 1e6:>7.0f} MB"
            f" {nodes:>7} {each:>9}{end}"
        )
    sizes = "".join(f"{c.size:>9}" for c in used)
    rows += ["", f"{'CPU seconds':<16}{sizes}  {'law':<26} at {report['at']}"]
    parts = [(r["phase"], r["costs"], r, "s") for r in report["phases"]]
    parts.append(("all", [c.cpu_s for c in used], report["total"], "s"))
    parts.append(("memory, MB", [c.peak_rss_bytes / 1e6 for c in used], report["memory"], "MB"))
    for name, row, fit, unit in parts:
        digits = 0 if unit == "MB" else 2
        rows.append(
            f"{name:<16}{''.join(f'{v:>9.{digits}f}' for v in row)}  {fit['words']:<26}"
            f" {amount_in_words(fit, unit)}"
        )
    return [row.rstrip() for row in rows]


def _sentence(
    used: Sequence[PhaseCost], knob: str, growth: Growth, name: str, report: Mapping[str, Any]
) -> str:
    first, last = used[0], used[-1]
    predicted = f"at {knob}={report['at']}: {amount_in_words(report['total'])}"
    if report["is_superlinear"]:
        rise = (
            f"{first.phases.get(name, 0.0):.2f} s at {knob}={first.size},"
            f" {last.phases.get(name, 0.0):.2f} s at {last.size}"
        )
        return (
            f"compile time grows faster than {knob}: {name} is {growth.words} ({rise}); all of the"
            f" compile {predicted}"
        )
    rise = f"{first.cpu_s:.1f} s at {knob}={first.size}, {last.cpu_s:.1f} s at {last.size}"
    return (
        f"compile time over {len(used)} sizes: {report['total']['words']} in {knob} ({rise}),"
        f" {predicted}"
    )


def _row(cost: PhaseCost) -> dict[str, Any]:
    nodes = cost.nodes.get("aten") or cost.nodes.get("dynamo") or 0
    per_node = round(cost.cpu_s / nodes, 5) if nodes and cost.is_used else None
    row = to_json(cost)
    assert isinstance(row, dict)
    return {**row, "cpu_s_per_node": per_node}
