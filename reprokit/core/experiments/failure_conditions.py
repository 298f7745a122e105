"""The conditions of a failure: what else must be as it was when the failure occurred.

Each condition can be changed by lines of the program or by environment variables. The search asks
first whether the failure occurs with all conditions changed: then it needs none of them. Otherwise
it looks for the smallest set of conditions that must not change, by delta debugging.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from reprokit.core.judge import same_failure
from reprokit.core.records.claims import Check, Claim, PackedProgram, claim
from reprokit.core.reduce import subsets
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import from_json, to_json


@dataclass(frozen=True)
class Change:
    """One change of a condition."""

    value: str
    """The changed value, as it is shown to the reader."""
    lines: tuple[str, ...] = ()
    """Lines of the program, after its imports, that make the change."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that make the change; only a fresh process has them."""
    is_warm: bool = False
    """The program runs with the compiler's cache that a run before it has filled."""
    fixed_by: tuple[str, ...] = ()
    """Lines with which a program itself makes a change of its environment."""


@dataclass(frozen=True)
class Condition:
    """One thing that may decide whether a program fails."""

    name: str
    value: str
    """The value with which the failure occurred."""
    changes: tuple[Change, ...]
    """The first one changes it most."""
    sets: tuple[str, ...] = ()
    """Lines with which a program sets the value itself."""
    fixed: tuple[Change, ...] = ()
    """Values that may show the failure too, and that a program can set: a repro sets the first one
    that does.
    """
    is_resource: bool = False
    """Without the value, any program may fail in a different way: then it is needed too."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """Expression that is true on a machine without the value -> what that machine lacks, in words.
    Two expressions: the first one holds if no changed value fails either.
    """

    @property
    def changed_to(self) -> str:
        """The name and the value of the first change, as they are shown to the reader."""
        return f"{self.name}: {self.changes[0].value}"

    def each_change(self) -> Iterator[Condition]:
        """Yield the condition with each of its changes alone."""
        for change in self.changes:
            yield dataclasses.replace(self, changes=(change,))


LIKELY = (("default dtype", "random seed"), ("vector instructions",))
"""Conditions that are often all that a failure needs, and are asked before the others: those that
change the values of inputs, and the one that changes most of the generated code.
"""


def merged(first: Conditions, second: Conditions) -> Conditions:
    """Return the conditions of two searches over different conditions."""
    return Conditions(
        needed=first.needed + second.needed,
        together=first.together + second.together,
        irrelevant=first.irrelevant + second.irrelevant,
        unknown=first.unknown + second.unknown,
        tried=first.tried + second.tried,
    )


@dataclass(frozen=True)
class Tried:
    """The answer of one run with changed conditions."""

    changed: tuple[str, ...]
    """The changes, as ``NAME: VALUE``."""
    answer: str
    """One of ``same_failure.ANSWERS``."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of the failure of a small program, and the runs that showed them."""

    about: ClassVar[type[PackedProgram]] = PackedProgram
    packed_as: ClassVar[str] = run_names.MINIMIZE_FILE

    needed: tuple[tuple[str, str], ...] = ()
    """Name and value of each condition without which the program passes."""
    together: tuple[tuple[str, str], ...] = ()
    """Conditions of which each may change, but not all of them at once."""
    irrelevant: tuple[str, ...] = ()
    """Names of the conditions that may change."""
    unknown: tuple[str, ...] = ()
    """Names of the conditions whose change leads to a different failure, or that were not tried."""
    tried: tuple[Tried, ...] = ()
    lines: tuple[str, ...] = ()
    """Lines with which the repro sets what it needs, and checks what it cannot set."""

    @property
    def sentence(self) -> str:
        """What the failure needs and what it does not depend on, in one line."""
        unknown = [f"Not known: {', '.join(self.unknown)}."] if self.unknown else []
        return " ".join(filter(None, (self._needs, self._independent, *unknown)))

    @property
    def _needs(self) -> str:
        needs = [f"{name}: {value}" for name, value in self.needed]
        rows = [f"Needs: {', '.join(needs)}."] if needs else []
        if self.together:
            each = ", ".join(f"{name}: {value}" for name, value in self.together)
            rows.append(f"Needs at least one of: {each}.")
        return " ".join(rows)

    @property
    def _independent(self) -> str:
        names = ", ".join(self.irrelevant)
        return f"Does not depend on: {names}." if names else ""

    @property
    def needs(self) -> list[Claim[PackedProgram]]:
        """What the failure needs, with the runs that check it; empty if it needs nothing."""
        checks = [Check("passes", {"condition": name, "value": v}) for name, v in self.needed]
        return [claim(self._needs, self, *checks)] if self._needs else []

    @property
    def does_not_need(self) -> list[Claim[PackedProgram]]:
        """How many conditions do not matter, and which, with the runs that check it."""
        checks = [Check("fails", {"condition": name}) for name in self.irrelevant]
        count = f"{len(self.irrelevant)} conditions were changed without effect."
        return [claim(f"{count} {self._independent}", self, *checks)] if checks else []

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for packs and ``--json``."""
        return {"sentence": self.sentence, **to_json(self)}


def read_conditions(document: Mapping[str, object]) -> Conditions:
    """Read the result of ``to_json``; raises ValueError if it is damaged."""
    found: Conditions = from_json(Conditions, document)
    return found


Answer = Callable[[tuple[Condition, ...]], str]
"""Returns the answer of a run with these conditions changed: one of ``same_failure.ANSWERS``."""


def find_conditions(conditions: Sequence[Condition], answer: Answer) -> Conditions:
    """Return which conditions the failure needs.

    ``answer`` is asked once if the failure needs none of them. It may raise an exception that ends
    the search.
    """
    tried: list[Tried] = []
    known: dict[tuple[str, ...], str] = {}

    def ask(changed: tuple[Condition, ...]) -> str:
        names = tuple(c.changed_to for c in changed)
        if names not in known:
            known[names] = answer(changed)
            tried.append(Tried(names, known[names]))
        return known[names]

    def holds(kept: list[Condition]) -> bool:
        return ask(tuple(c for c in conditions if c not in kept)) == same_failure.SAME

    kept: list[Condition] = []
    if conditions and not holds([]):
        likely = ([c for c in conditions if c.name in names] for names in LIKELY)
        kept = next((some for some in likely if some and holds(some)), list(conditions))
        kept = subsets.ddmin(kept, holds)
    alone = {c.name: ask((c,)) for c in kept}
    is_known = {same_failure.SAME, same_failure.PASSES}
    for condition in kept:
        if condition.is_resource and alone[condition.name] not in is_known:
            alone[condition.name] = same_failure.PASSES
    either = _either(
        conditions, [c for c in kept if alone[c.name] == same_failure.SAME], alone, ask
    )
    of_kept = {
        name: tuple((c.name, c.value) for c in kept if alone[c.name] == name)
        for name in same_failure.ANSWERS
    }
    return Conditions(
        needed=of_kept[same_failure.PASSES],
        together=tuple((c.name, c.value) for c in either),
        irrelevant=tuple(c.name for c in conditions if c not in kept and c not in either),
        unknown=tuple(c.name for c in kept if alone[c.name] not in is_known),
        tried=tuple(tried),
    )


def _either(
    conditions: Sequence[Condition],
    replaceable: Sequence[Condition],
    alone: Mapping[str, str],
    ask: Answer,
) -> list[Condition]:
    """Return the smallest set of conditions that stops the failure only if all of them change.

    ``replaceable`` are conditions of the smallest sufficient set that may change alone, because
    others replace them; ``alone`` has the answers for that set.
    """
    free = [c for c in conditions if alone.get(c.name, same_failure.SAME) == same_failure.SAME]

    def stops(changed: list[Condition]) -> bool:
        return ask(tuple(c for c in free if c in changed)) == same_failure.PASSES

    return subsets.ddmin(free, stops) if replaceable and stops(free) else []
