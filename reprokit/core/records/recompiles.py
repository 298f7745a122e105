"""Recompiles and graph breaks of a program."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprokit.core.shared.contract.events import Begin, GraphBreakFound, Recompile, RecompileLimit

MIN_STORM_RECOMPILES = 5
"""The number of recompiles of one function that are a storm. A change from static to dynamic sizes
causes one or two.
"""

STORM_MESSAGE = "compiled again and again"
"""The message of an assertion in a program that counts its own compiles."""

BREAK_MESSAGE = "a graph breaks"
"""The message of an assertion in a program that checks for its own graph breaks."""


@dataclass(frozen=True)
class RecompiledFunction:
    """One function that was compiled more than once."""

    function: str
    file: str
    line: int
    count: int
    guards: tuple[str, ...]
    """The guards that failed, in their order, one for each recompile: ``self.n == 3``."""
    code: str = ""
    """The user's line that made the last of ``worst_guards``."""
    where: str = ""
    """``file:line in function`` of that line."""
    limit: str = ""
    """The name of the limit that was reached: ``recompile_limit`` or
    ``accumulated_recompile_limit``.
    """
    cpu_s: float = 0.0
    """CPU seconds of the compiles after the first."""
    caller: str = ""
    """``file:line`` of the user's line that calls the function. May be empty."""
    also: tuple[str, ...] = ()
    """The guards on numbers that failed in the same recompiles, after the one that Dynamo names."""

    @property
    def guard(self) -> str:
        """The guard that failed most often, normalised by :func:`normalise_guard`."""
        forms = [normalise_guard(g) for g in self.guards]
        return max(forms, key=forms.count, default="")

    @property
    def worst_guards(self) -> tuple[str, ...]:
        """The guards on the value that caused most recompiles, in their order."""
        alike = [g for g in self.guards if normalise_guard(g) == self.guard]
        values = [guarded_value(g) for g in alike]
        worst = max(values, key=values.count, default="")
        return tuple(g for g, value in zip(alike, values, strict=True) if value == worst)

    @property
    def changing(self) -> tuple[tuple[str, ...], ...]:
        """The guards on each value that changed in at least half of the recompiles, the worst
        first. Dynamo names only the first guard that fails, so a change of one value is not enough
        if there are several.
        """
        if not self.guards:
            return ()
        groups: dict[str, list[str]] = {}
        for guard in (*self.guards, *self.also):
            groups.setdefault(guarded_value(guard), []).append(guard)
        del groups[guarded_value(self.worst_guards[0])]
        often = [tuple(g) for g in groups.values() if len(g) > 1 and 2 * len(g) >= self.count]
        return (self.worst_guards, *sorted(often, key=len, reverse=True))

    @property
    def changes(self) -> str:
        """What changes: the first and the last of the guards on one value, or several values."""
        if len(self.changing) > 1:
            values = [_readable(guarded_value(guards[0])) for guards in self.changing]
            return " and ".join(re.sub(r" == $|\. expected $", "", value) for value in values)
        alike = [_readable(guard) for guard in self.worst_guards]
        return ", then ".join([*alike[:1], *alike[1:][-1:]])


@dataclass(frozen=True)
class GraphBreak:
    """One line at which Dynamo ended a graph, or gave up a function."""

    reason: str
    """The type in PyTorch's registry of graph breaks, such as ``Data-dependent branching``."""
    where: str = ""
    """``file:line`` of the line, which may be in a package."""
    detail: str = ""
    is_given_up: bool = False
    """The whole function runs without the compiler."""
    count: int = 1
    hints: tuple[str, ...] = ()
    """What Dynamo says to change, one sentence or two each."""
    caller: str = ""
    """``file:line`` of the user's line: the same, or the one that calls it. May be empty."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of Dynamo that its hints say to turn on, by their full names."""
        return tuple(dict.fromkeys(_SETTING.findall(" ".join(self.hints))))


_SETTING = re.compile(r"(torch\._dynamo\.config\.\w+) ?= ?True")
_HINT = re.compile(r"^ *Hint: (.+)$", re.MULTILINE)
_GUARD = re.compile(
    r"(?:\d+/\d+(?:_\d+)?: )?(?P<guard>.*?)(?:\s+#\s?(?P<code>.*?)\s+#\s"
    r"(?P<where>(?:(?!\s#\s).)+?:\d+ in \S+).*)?",
    re.DOTALL,
)


def read_guard(reason: str) -> tuple[str, str, str]:
    """Return the failed guard, the user's line, and the position of that line, from Dynamo's reason
    for a recompile.
    """
    first = reason.strip().splitlines()[0] if reason.strip() else ""
    match = _GUARD.fullmatch(first)
    if not match:
        return first[:300], "", ""
    return match["guard"].strip()[:300], (match["code"] or "").strip(), match["where"] or ""


def guarded_value(guard: str) -> str:
    """Return what a guard checks, without the value that it expects: ``self.n == ``."""
    text = re.sub(r"(?<= == ).*|(?<= expected ).*", "", guard, flags=re.DOTALL)
    return re.sub(r"^(___check_\w+\([^,]+),.*", r"\1", text, flags=re.DOTALL)


def _readable(guard: str) -> str:
    """Return a guard with the names of submodules as a program writes them, and without the place
    in torch that made it.
    """
    guard = re.sub(r"\s+# \(.*\)$", "", guard, flags=re.DOTALL)
    return re.sub(r"\._modules\['(\w+)'\]", r".\1", guard)


def normalise_guard(guard: str) -> str:
    """Return a guard without the parts that depend on the model: names of roots, numbers, quoted
    names.
    """
    text = re.sub(r"\b[LG]\[['\"]\w+['\"]\]", "<input>", guard)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "<name>", text)
    text = re.sub(r"(?<![\w.<])(?!torch\b)[A-Za-z_]\w*(?=[.\[])", "<input>", text)
    text = re.sub(r"-?\b\d+(?:\.\d+)?\b", "#", text)
    # the depth of an attribute in a model, and its type, which torch 2.12 and later append, are not
    # part of the bug
    text = re.sub(r"<input>(?:\.\w+|\[[^\]]*\])*(\.\w+)", r"<input>\1", text)
    text = re.sub(r"^(___check_\w+\(.*?\)), type=.*", r"\1", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()[:160]


def recompiled_functions(
    events: Sequence[Recompile], limits: Mapping[str, str], cpu_s: Mapping[str, float]
) -> tuple[RecompiledFunction, ...]:
    """Group ``recompile`` events by function, the worst first.

    ``limits`` has the limit that was reached, and ``cpu_s`` the CPU seconds of compiles after the
    first, by :func:`frame_of_event`. For several processes that run one program, only the worst
    process counts.
    """
    groups: dict[tuple[str, str, int, int], list[Recompile]] = {}
    for event in events:
        groups.setdefault(
            (str(event.function), str(event.file), event.line or 0, event.pid), []
        ).append(event)
    worst: dict[tuple[str, str, int], RecompiledFunction] = {}
    for (function, file, line, _), rows in groups.items():
        guards = [read_guard((r.reasons or [""])[0]) for r in rows]
        frames = {frame_of_event(r) for r in rows}
        recompiled = RecompiledFunction(
            function,
            file,
            line,
            len(rows),
            tuple(guard for guard, _, _ in guards),
            limit=next((limits[f] for f in frames if f in limits), ""),
            cpu_s=round(sum(cpu_s.get(f, 0.0) for f in frames), 2),
            caller=rows[-1].caller,
            also=tuple(guard for row in rows for guard in row.also),
        )
        last = recompiled.worst_guards[-1]
        code, where = next((c, w) for guard, c, w in reversed(guards) if guard == last)
        recompiled = dataclasses.replace(recompiled, code=code, where=where)
        before = worst.get((function, file, line))  # from a different process
        if before is None or _severity(recompiled) < _severity(before):
            worst[function, file, line] = recompiled
    return tuple(sorted(worst.values(), key=_severity))


def frame_of_event(event: Begin | Recompile | RecompileLimit) -> str:
    """Return the process of the event and Dynamo's number of the frame that is compiled."""
    return f"{event.pid}:{(event.cid or '').split('/')[0]}"


def _severity(recompiled: RecompiledFunction) -> tuple[bool, int]:
    return not recompiled.limit, -recompiled.count


LIMIT_REASON = "Dynamo recompile limit exceeded"


def graph_breaks(events: Sequence[GraphBreakFound]) -> tuple[GraphBreak, ...]:
    """Group ``graph_break`` events by reason and position, in the order of their first event.

    Of several processes with the same break, only the first counts. A recompile limit is none,
    though Dynamo raises it as one: its graphs are whole.
    """
    events = [event for event in events if event.reason != LIMIT_REASON]
    breaks: dict[tuple[str, str], GraphBreak] = {}
    first = {(e.reason, e.where): e.pid for e in reversed(events)}
    for event in events:
        key = (event.reason, event.where)
        if event.pid != first[key]:
            continue
        is_given_up = event.is_given_up
        before = breaks.get(key)
        # Dynamo reports a break again when it gives up the function
        count = before.count + (not is_given_up) if before else 1
        is_given_up |= before is not None and before.is_given_up
        hints = tuple(_HINT.findall(event.detail))
        breaks[key] = GraphBreak(*key, event.detail[:500], is_given_up, count, hints, event.caller)
    return tuple(breaks.values())
