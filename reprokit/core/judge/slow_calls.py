"""Compiled calls that are slower than eager: the verdict, and which part of a call is the cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprokit.core.judge.stacks.evidence import ends_by_itself
from reprokit.core.judge.stacks.location import as_sentence, plural
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.recompiles import GraphBreak
from reprokit.core.records.speed import SLOWER, Speed
from reprokit.core.shared.contract.events import CallPart

GUARDS, BREAKS, OVERHEAD, COPIES = "guards", "graph breaks", "overhead of a call", "copies"
"""Causes; other causes name a kernel or an operator."""
COSTS_OF_CALLS = frozenset({GUARDS, BREAKS, OVERHEAD, COPIES})
_COPY_OPS = frozenset(
    "clone copy copy_ contiguous _to_copy permute t transpose view _unsafe_view expand unsqueeze"
    " slice select as_strided empty_strided detach alias".split()
)
"""Operators that compute no value. A kernel of only these copies."""
MIN_REGIONS = 1.5
"""More compiled regions than this in a pass are the parts of a broken graph, or several calls."""
MAX_SHOWN = 6
"""Limit of the kernels and operators that are listed."""


@dataclass(frozen=True)
class Blame:
    """The part of a compiled call that makes it slow."""

    cause: str
    phase: str | None
    words: str
    where: str = ""


def judge_speed(seen: Observation) -> Verdict | None:
    """Return the verdict on compiled calls that are slower than eager."""
    speed = seen.speed
    if speed is None or speed.answer != SLOWER or not ends_by_itself(seen):
        return None
    why = f"compiled calls are slower than eager: {speed.sentence}"
    shown = _evidence(speed)
    if speed.no_parts or not speed.parts:
        return Verdict("slower", None, None, as_sentence(why), shown)
    blame = find_blame(speed, seen.breaks)
    return Verdict(
        "slower",
        blame.phase,
        blame.cause,
        as_sentence(f"{why}; {blame.words}"),
        shown,
        work={"line": blame.where} if blame.where else {},
    )


def find_blame(speed: Speed, breaks: tuple[GraphBreak, ...]) -> Blame:
    """Return the part that makes compiled calls slow.

    What a call computes is the cause only if that alone takes longer than eager. Otherwise it is a
    cost that eager does not have: guards, the calls between graphs, or Python and launches.
    """
    if speed.computing_s <= speed.eager_s or speed.guards_s > speed.computing_s:
        if speed.regions > MIN_REGIONS and breaks:
            first = breaks[0]
            words = (
                f"graph breaks split it into {speed.regions:.0f} compiled regions, and"
                f" {speed.share(speed.guards_s + speed.rest_s)} of it is guards and the calls of"
                " these regions;"
                f" the first break is {first.reason}, at {first.where}"
            )
            return Blame(BREAKS, "dynamo-trace", words, first.where)
        guards = describe_guards(speed)
        if speed.guards_s > speed.rest_s:
            return Blame(GUARDS, "guards", guards, str(speed.guards.get("where", "")))
        words = (
            f"{speed.share(speed.rest_s)} of it is Python code and the launch of {_launches(speed)}"
        )
        has_slow_guards = speed.guards_s > speed.computing_s
        return Blame(OVERHEAD, None, f"{words}; {guards}" if has_slow_guards else words)
    part = max((p for p in speed.parts if p.kind != "guards"), key=lambda p: _excess(speed, p))
    takes = f"{speed.share_of(part)} of it is {_named(part)}"
    if eager_s := _eager_s(speed, part):
        takes += f", which takes {part.seconds / eager_s:.1f} times as long as in eager"
    if _is_copy(part):
        return Blame(COPIES, "kernel-run", f"{takes}, a copy", part.where)
    ops = ", ".join(sorted(part.ops)[:4])
    return Blame(f"{part.kind} of {ops}", "kernel-run", takes, part.where)


def describe_guards(speed: Speed) -> str:
    """Return what the guards cost, and the line of the slowest ones, as a clause."""
    more = speed.guards_s > speed.computing_s
    text = f"guards take {speed.share(speed.guards_s)} of a call" + ", more than kernels" * more
    guards = speed.guards
    if not guards.get("code"):
        return text
    where = f" at {guards['where']}" if guards.get("where") else ""
    of_all = f"{guards['line_guards']} of {plural(int(guards['guards']), 'guard')}"
    return f"{text}; {of_all} are{where}, such as {guards['code']}"


def notes_on_speed(speed: Speed) -> tuple[str, ...]:
    """Return the notes on a run whose compiled calls are not known to be slower."""
    rows = [as_sentence(speed.sentence)]
    if speed.parts and speed.guards_s > speed.computing_s:
        rows.append(as_sentence(describe_guards(speed)))
    return tuple(rows)


def _evidence(speed: Speed) -> tuple[str, ...]:
    rows = [
        f"eager: {_in_words(speed.eager_s)}, compiled: {_in_words(speed.compiled_s)} for one pass"
        f" over the calls; the lower quartile of {speed.ratio.pairs} blocks in turns, in"
        f" {speed.processes} {'process' if speed.processes == 1 else 'processes'}"
    ]
    if speed.no_parts:
        rows.append(speed.no_parts)
    elif speed.parts:
        rows.append(describe_guards(speed))
        computing = [part for part in speed.parts if part.kind != "guards"]
        rows += [f"{_named(part)} takes {speed.share_of(part)}" for part in computing[:MAX_SHOWN]]
        rows.append(f"Python code and launches, the rest, take {speed.share(speed.rest_s)}")
    if speed.no_instructions:
        rows.append(f"CPU instructions: {speed.no_instructions}")
    return tuple(rows)


def _named(part: CallPart) -> str:
    what = f"the operator {part.name}" if part.kind == "operator" else f"the kernel {part.name}"
    what += " outside of compiled code" * (part.kind == "operator" and not part.is_compiled)
    times = f", {part.count:.0f} times" if part.count > 1.5 else ""
    return f"{what}{times}" + (f" at {part.where}" if part.where else "")


def _is_copy(part: CallPart) -> bool:
    named = re.fullmatch(r"cpp_fused_(.+)_\d+", part.name)
    return set(part.ops) <= _COPY_OPS and (part.kind == "operator" or named is not None)


def _launches(speed: Speed) -> str:
    count = round(sum(part.count for part in speed.parts if part.kind != "guards"))
    return "1 kernel or operator" if count == 1 else f"{count} kernels and operators"


def _eager_s(speed: Speed, part: CallPart) -> float:
    """Return the seconds that eager takes for the operators of a part: its share, if other parts
    compute the same operators.
    """
    total = 0.0
    for op in part.ops:
        same = [other for other in speed.parts if op in other.ops]
        everywhere = sum(other.seconds for other in same)
        if everywhere:
            total += speed.eager_operators.get(op, 0.0) * part.seconds / everywhere
    return total


def _excess(speed: Speed, part: CallPart) -> float:
    return part.seconds - _eager_s(speed, part)


def _in_words(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"
