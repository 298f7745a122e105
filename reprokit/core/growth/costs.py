"""What a compile cost, phase by phase, from the journals of a run; and how that grows over several
runs.
"""

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
from reprokit.core.shared.contract.events import Begin, End, Event, Exit
from reprokit.core.shared.contract.serialize import SCHEMA, to_json

CHILDREN = "cpp-build"
"""The phase of what other processes did for the compiler: g++, compile workers."""
MOST_PASSES = 12
LEAST_SIZES = 3
FLOOR_S = 0.05
"""A cost below this is noise."""
MULTIPLE = 4
"""What is predicted where neither the user nor the zoo names a full size: so many times the largest
that was run.
"""
LEAST_RISE_BYTES = 100e6
LEAST_RISE = 0.05
"""A whole that grows by less of itself until the full size is what it was measured to be."""
SHARED = 0.6
"""A frame that stands in so many of a phase's stacks is where it works."""
DISPATCH = frozenset(
    {"_default", "__call__", "fn", "run", "run_node", "call_function", "call_method"}
)
"""They call whatever comes, so they name nothing."""


@dataclass(frozen=True)
class PhaseCost:
    """One run of a target at one size."""

    size: int
    run: str
    """The name of its run directory."""
    verdict: str
    is_used: bool
    """It ran to its end, so that its costs are those of the whole compile."""
    cpu_s: float
    """Of the compile alone, with what other processes did for it; importing, building and running
    are left out.
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
    """CPU seconds by compiler phase and by event; ``cpu_s`` is what the whole process tree used,
    and ``cpu_by_pid`` what single processes of it did until they were gone.

    An event's own time is that in which it was the innermost. The clock is that of the process:
    what passed between two events belongs to the thread that wrote the second, or where that had
    nothing open, to the one that has. What a process did after its last event belongs to what was
    open when it was ended; after its exit, Python takes itself down.
    """
    by_phase: dict[str, float] = {}
    by_event: dict[str, float] = {}
    own = 0.0
    for pid, events in by_pid.items():
        stacks: dict[Any, list[str]] = {}
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
            named = phases.phase_of_events(charged)
            if named and named[0] in phases.COMPILE_PHASES and cpu > before:
                by_phase[named[0]] = by_phase.get(named[0], 0.0) + cpu - before
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
    """One cost of several runs at one size: other work on the machine only adds, so the least of
    each phase counts.
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
    """CPU seconds of the phases that are one part of the compiler."""
    return sum(by_phase.get(name, 0.0) for name in part)


def compare_growth(
    low: PhaseCost, high: PhaseCost, knob: str, part: Collection[str], ratio: float
) -> dict[str, Any]:
    """What :func:`summarise` gives, for two sizes of a program that is only asked whether it grows
    as another one does.

    It does when ``part`` costs ``ratio`` times as much at the larger size; which law that follows
    two sizes do not tell.
    """
    one, two = costs_of_part(low.phases, part), costs_of_part(high.phases, part)
    phase = max(part, key=lambda name: high.phases.get(name, 0.0))
    return {
        "knob": knob,
        "is_superlinear": two >= ratio * max(one, FLOOR_S),
        "sizes": [_row(low), _row(high)],
        "says": f"compile of {two:.2f} s at {knob}={high.size}, {one:.2f} s at {low.size}",
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
    """By what ``low`` grows on the way to ``high``, half way in logarithms from ``line``, which
    would be healthy.
    """
    return math.sqrt(line * high) / low


def allowed_ratio(growth: Mapping[str, Any], part: Collection[str], floor_s: float) -> float:
    """What all of a compile may cost at the larger of two sizes, in multiples of the smaller, of
    what ``steeper`` told.

    Half way, in logarithms, from what it would be if ``part`` grew as a line to what was measured:
    what does not grow, such as the compiler's own start, weighs on both sides.
    """
    low, high = growth["sizes"]
    one, two = costs_of_part(low["phases"], part), costs_of_part(high["phases"], part)
    line = max(one, FLOOR_S) * high["size"] / low["size"]
    return geometric_midpoint(
        max(float(low["cpu_s"]), floor_s), high["cpu_s"] - two + line, high["cpu_s"]
    )


def place_of_growth(stacks: Sequence[Sequence[Frame]], phase: str) -> str:
    """The innermost frame of ``phase`` that most of the normalised stacks in it share; empty when
    there are none.

    What recurses stands at many depths: a function counts where the stack first came to it.
    """
    depths: dict[str, list[int]] = {}
    count = 0
    for stack in stacks:
        found = phases.phase_of_frames(stack)
        if found is None or found[0] != phase:
            continue
        kept = [
            f
            for f in fr.RULES.significant(stack, len(stack))[0]
            if (phases.phase_of_frames((f,)) or ("",))[0] == phase
        ]
        count += bool(kept)  # an import of the compiler's own modules keeps none
        for name, depth in {fr.show_frame(f): len(kept) - i for i, f in enumerate(kept)}.items():
            if name.rsplit(":", 1)[-1] not in DISPATCH:
                depths.setdefault(name, []).append(depth)
    shared = {
        name: sorted(d)[len(d) // 2] for name, d in depths.items() if len(d) >= SHARED * count
    }
    return max(shared, key=lambda name: (shared[name], name), default="")


def summarise_growth(costs: Sequence[PhaseCost], knob: str, at: int) -> dict[str, Any]:
    """``growth.json``: what was measured, the law of each phase, and what they predict for the size
    ``at``.
    """
    used = sorted((c for c in costs if c.is_used), key=lambda c: c.size)
    told: dict[str, Any] = {
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
    if len(used) < LEAST_SIZES:
        told["says"] = (
            f"{len(used)} of {len(costs)} sizes ran through, and a law needs {LEAST_SIZES}"
        )
        return told
    found = {
        name: fit_law([(c.size, c.phases.get(name, 0.0)) for c in used], at)
        for c in used
        for name in c.phases
    }
    value, low, high, can_tell = laws.add_growths(list(found.values()))
    whole = fit_law([(c.size, c.cpu_s) for c in used], at)
    memory = fit_law(
        [(c.size, float(c.peak_rss_bytes)) for c in used], at, laws.FLOOR_BYTES, LEAST_RISE_BYTES
    )
    last = used[-1]
    law = _leading(found, last) or whole
    sums = {
        "predicted": round(value, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "can_tell": can_tell,
    }
    told["total"] = {**whole.to_json(), "law": law.law, "words": law.words, **sums}
    told["memory"] = {**memory.to_json(), "grew": last.peak_rss_bytes - used[0].peak_rss_bytes}
    order = sorted(found, key=lambda name: -found[name].predicted)
    told["phases"] = [
        {"phase": n, "costs": [c.phases.get(n, 0.0) for c in used], **found[n].to_json()}
        for n in order
    ]
    for name in sorted(last.passes, key=lambda n: -last.passes[n])[:MOST_PASSES]:
        row = [(c.size, c.passes.get(name, 0.0)) for c in used]
        told["passes"].append(
            {"pass": name, "costs": [cost for _, cost in row], **fit_law(row, at).to_json()}
        )

    def badness(name: str) -> tuple[bool, float]:
        one = found[name]
        # by what is certain of it: a wide interval of a small phase must not hide a large one
        return one.is_superlinear and laws.is_material(one, low), one.low

    worst = max(found, key=badness)
    inside = [n for n in last.passes if (phases.phase_of_events([n]) or ("",))[0] == worst]
    told["is_superlinear"] = badness(worst)[0]
    told["worst"] = {
        "phase": worst,
        "law": found[worst].law,
        "words": found[worst].words,
        "frame": "",
        "event": max(inside, key=lambda n: last.passes[n], default=""),
    }
    told["says"] = _say(used, knob, found[worst], worst, told)
    told["table"] = _table(told, used)
    return told


def _leading(found: dict[str, Growth], last: PhaseCost) -> Growth | None:
    """The part that says by which law the whole grows on: of the law that adds most until the full
    size; None: of none.
    """
    rises = {
        name: max(one.predicted - last.phases.get(name, 0.0), 0.0) for name, one in found.items()
    }
    by_law = {law: sum(rises[n] for n in found if found[n].law == law) for law in laws.PRICES}
    law = max(by_law, key=lambda name: by_law[name])
    if by_law[law] < LEAST_RISE * last.cpu_s:
        return None
    return found[max((n for n in found if found[n].law == law), key=lambda name: rises[name])]


def amount_in_words(row: dict[str, Any], unit: str = "s") -> str:
    """A prediction in words: ``32 s (25 to 41)``, or what can be said where it cannot be told."""
    scale, digits = (1e6, 0) if unit == "MB" else (1.0, 1)
    value, low, high = (row[n] / scale for n in ("predicted", "low", "high"))
    if row["can_tell"]:
        digits = digits if value < 100 else 0
        return f"{value:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"
    return (
        f"cannot tell (over {low:.{digits}f} {unit})"
        if low * scale < laws.MOST / 1e3
        else "without bound"
    )


def _table(told: dict[str, Any], used: Sequence[PhaseCost]) -> list[str]:
    """What was measured, and the laws, as lines of text: for the terminal, the issue and the report
    alike.
    """
    rows = [f"{told['knob']:>16} {'compile':>10} {'memory':>10} {'nodes':>7} {'a node':>9}"]
    for size in told["sizes"]:
        nodes = size["nodes"].get("aten") or size["nodes"].get("dynamo") or 0
        each = f"{size['cpu_s_per_node'] * 1e3:.1f} ms" if size["cpu_s_per_node"] else ""
        end = "" if size["is_used"] else f"  {size['verdict']}: left out of the fit"
        rows.append(
            f"{size['size']:>16} {size['cpu_s']:>8.1f} s {size['peak_rss_bytes'] / 1e6:>7.0f} MB"
            f" {nodes:>7} {each:>9}{end}"
        )
    rows += [
        "",
        f"{'CPU seconds':<16}{''.join(f'{c.size:>9}' for c in used)}  {'law':<26} at {told['at']}",
    ]
    parts = [(r["phase"], r["costs"], r, "s") for r in told["phases"]]
    parts.append(("all", [c.cpu_s for c in used], told["total"], "s"))
    parts.append(("memory, MB", [c.peak_rss_bytes / 1e6 for c in used], told["memory"], "MB"))
    for name, row, fit, unit in parts:
        digits = 0 if unit == "MB" else 2
        rows.append(
            f"{name:<16}{''.join(f'{v:>9.{digits}f}' for v in row)}  {fit['words']:<26}"
            f" {amount_in_words(fit, unit)}"
        )
    return [row.rstrip() for row in rows]


def _say(used: Sequence[PhaseCost], knob: str, one: Growth, name: str, told: dict[str, Any]) -> str:
    first, last = used[0], used[-1]
    predicted = f"at {knob}={told['at']}: {amount_in_words(told['total'])}"
    if told["is_superlinear"]:
        rise = (
            f"{first.phases.get(name, 0.0):.2f} s at {knob}={first.size},"
            f" {last.phases.get(name, 0.0):.2f} s at {last.size}"
        )
        return (
            f"compile time grows faster than {knob}: {name} is {one.words} ({rise}); all of the"
            f" compile {predicted}"
        )
    rise = f"{first.cpu_s:.1f} s at {knob}={first.size}, {last.cpu_s:.1f} s at {last.size}"
    return (
        f"compile time over {len(used)} sizes: {told['total']['words']} in {knob} ({rise}),"
        f" {predicted}"
    )


def _row(cost: PhaseCost) -> dict[str, Any]:
    nodes = cost.nodes.get("aten") or cost.nodes.get("dynamo") or 0
    per_node = round(cost.cpu_s / nodes, 5) if nodes and cost.is_used else None
    row = to_json(cost)
    assert isinstance(row, dict)
    return {**row, "cpu_s_per_node": per_node}
