"""Recompiles and graph breaks: what a program asked the compiler to do again, or could not have it
do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprokit.core.shared.contract.events import Begin, GraphBreakFound, Recompile, RecompileLimit

STORM = 5
"""So often must one function be compiled again to be called a storm; a change from static to
dynamic sizes is one or two.
"""

TOLD = "compiled again and again"
"""What a program says that counts its own compiles."""

BROKEN = "a graph breaks"
"""What a program says that looks for its own graph breaks."""


@dataclass(frozen=True)
class RecompiledFunction:
    """One function that was compiled more than once."""

    function: str
    file: str
    line: int
    count: int
    guards: tuple[str, ...]
    """The guards that failed, in their order, one a recompile: ``self.n == 3``."""
    code: str = ""
    """The user's line that the last guard came from."""
    where: str = ""
    """``file:line in function`` of that line."""
    limit: str = ""
    """The name of the limit that was hit: ``recompile_limit`` or
    ``accumulated_recompile_limit``.
    """
    cpu_s: float = 0.0
    """Processor seconds of the compiles after the first."""

    @property
    def guard(self) -> str:
        """The guard that failed most often, as it is written in every model: names and numbers
        blanked.
        """
        forms = [normalise_guard(g) for g in self.guards]
        return max(forms, key=forms.count, default="")

    @property
    def changes(self) -> str:
        """What changes: the guards of that form, from the first to the last."""
        told = [g for g in self.guards if normalise_guard(g) == self.guard]
        return told[0] if len(told) < 2 else f"{told[0]}, then {told[-1]}"


@dataclass(frozen=True)
class GraphBreak:
    """One place at which Dynamo ended a graph, or gave a function up."""

    reason: str
    """Its type in PyTorch's registry of graph breaks, such as ``Data-dependent branching``."""
    where: str = ""
    """``file:line`` of the user's line."""
    detail: str = ""
    is_given_up: bool = False
    """The whole function runs without the compiler."""
    count: int = 1


_GUARD = re.compile(
    r"(?:\d+/\d+(?:_\d+)?: )?(?P<guard>.*?)(?:\s+#\s?(?P<code>.*?)\s+#\s(?P<where>\S+:\d+ in"
    r" \S+).*)?",
    re.DOTALL,
)


def read_guard(reason: str) -> tuple[str, str, str]:
    """The failed guard, the user's line and where that stands, of what Dynamo says of a
    recompile.
    """
    first = reason.strip().splitlines()[0] if reason.strip() else ""
    found = _GUARD.fullmatch(first)
    if not found:
        return first[:300], "", ""
    return found["guard"].strip()[:300], (found["code"] or "").strip(), found["where"] or ""


def normalise_guard(guard: str) -> str:
    """A guard without what belongs to one model: the root's name, numbers, quoted names."""
    text = re.sub(r"\b[LG]\[['\"]\w+['\"]\]", "<input>", guard)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "<name>", text)
    text = re.sub(r"(?<![\w.<])(?!torch\b)[A-Za-z_]\w*(?=[.\[])", "<input>", text)
    text = re.sub(r"-?\b\d+(?:\.\d+)?\b", "#", text)
    # how deep in a model the attribute lies, and what torch 2.12 and newer say of its type, is not
    # the bug
    text = re.sub(r"<input>(?:\.\w+|\[[^\]]*\])*(\.\w+)", r"<input>\1", text)
    text = re.sub(r"^(___check_\w+\(.*?\)), type=.*", r"\1", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()[:160]


def recompiled_functions(
    events: Sequence[Recompile], limits: Mapping[str, str], cpu_s: Mapping[str, float]
) -> tuple[RecompiledFunction, ...]:
    """Group ``recompile`` events by function, the worst first.

    ``limits`` has the limit that was hit, and ``cpu_s`` the processor seconds of compiles after the
    first, by :func:`frame_of`. Of several processes that run one program the worst counts, not
    their sum.
    """
    groups: dict[tuple[str, str, int, int], list[Recompile]] = {}
    for event in events:
        groups.setdefault(
            (str(event.function), str(event.file), event.line or 0, event.pid), []
        ).append(event)
    found: dict[tuple[str, str, int], RecompiledFunction] = {}
    for (function, file, line, _), rows in groups.items():
        reasons = [(r.reasons or [""])[0] for r in rows]
        told = [read_guard(reason) for reason in reasons]
        frames = {frame_of(r) for r in rows}
        one = RecompiledFunction(
            function,
            file,
            line,
            len(rows),
            tuple(g for g, _, _ in told),
            told[-1][1],
            told[-1][2],
            next((limits[f] for f in frames if f in limits), ""),
            round(sum(cpu_s.get(f, 0.0) for f in frames), 2),
        )
        before = found.get((function, file, line))  # of another rank: one of them is told
        if before is None or _rank(one) < _rank(before):
            found[function, file, line] = one
    return tuple(sorted(found.values(), key=_rank))


def frame_of(event: Begin | Recompile | RecompileLimit) -> str:
    """Dynamo's number of the frame that is compiled, in its process."""
    return f"{event.pid}:{(event.cid or '').split('/')[0]}"


def _rank(one: RecompiledFunction) -> tuple[bool, int]:
    return not one.limit, -one.count


def graph_breaks(events: Sequence[GraphBreakFound]) -> tuple[GraphBreak, ...]:
    """Group ``graph_break`` events by reason and place, in the order in which they were met; ranks
    break alike.
    """
    found: dict[tuple[str, str], GraphBreak] = {}
    first = {(e.reason, e.where): e.pid for e in reversed(events)}
    for event in events:
        key = (event.reason, event.where)
        if event.pid != first[key]:
            continue
        is_given_up = event.is_given_up
        before = found.get(key)
        # a break is reported again where its function is given up
        count = before.count + (not is_given_up) if before else 1
        is_given_up |= before is not None and before.is_given_up
        found[key] = GraphBreak(*key, event.detail[:500], is_given_up, count)
    return tuple(found.values())
