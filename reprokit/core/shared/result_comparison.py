"""The comparison of compiled results with those of eager: what differs, where, and which side is
wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .contract.result_events import Compared, Departs

NUMBERS = frozenset({"values", "nan", "inf", "integers", "value"})
"""Differences of numbers. They form one family: a NaN in one operator is a wrong value or an
infinity in the next.
"""
MISSING, NOTHING = "missing", "nothing"
"""The difference of a value that only one of the two runs has, and what the other one has."""
ROLES = ("eager", "compiled", "again", "float64", "repeated")
"""The runs of a comparison, in their order. The others are made only if the first two differ."""
COMPILED_ROLES = ("compiled", "repeated")
"""The roles in which the program is compiled; the second one is the same run again."""

SEED = 20
"""The random seed of each run of a comparison, if the program sets none."""


OF_STATE = "gradient of ", "buffer "
"""How the names of leaves begin that are no results of the call itself."""


@dataclass(frozen=True)
class Difference:
    """One leaf of the results that differs between eager and compiled."""

    call: int
    """The number of the call of a compiled callable; -1 for a value at the end of the program, such
    as a gradient.
    """
    name: str
    """``output[0]``, ``argument[1]`` (after the call), ``gradient of ...``, ``buffer ...``."""
    what: str
    """``values``, ``nan``, ``inf``, ``integers``, ``signed-zero``, ``dtype``, ``shape``,
    ``stride``, ``aliasing``, ``value`` (not of a tensor) or ``missing``.
    """
    side: str
    """The wrong side: ``compiled``, ``eager``, ``unknown`` without a float64 run, or ``unclear``
    for a difference that may be noise.
    """
    expected: str = ""
    """The value of eager at the worst element."""
    got: str = ""
    """The value of compiled code at the same element."""
    reference: str = ""
    """The value of the float64 run at the same element."""
    index: tuple[int, ...] = ()
    """The index of the worst element."""
    count: int = 0
    """How many of the ``total`` elements are beyond the tolerance."""
    total: int = 0
    max_abs: float | str = 0.0
    mean_abs: float | str = 0.0
    max_relative: float | str = 0.0

    def __str__(self) -> str:
        """Return one line: where, what, and how much."""
        has_size = self.what in ("values", "integers")
        most = " differ most" if has_size else ""
        at = f"{most} at index {list(self.index)}" if self.index else ""
        in_call = f" of call {self.call}" if self.call > 0 else ""
        text = (
            f"{self.name}{in_call}: {self.what}{at}: eager gives {self.expected}, compiled code"
            f" {self.got}"
        )
        if self.reference:
            text += f", float64 {self.reference}"
        if self.total:
            text += f"; {self.count} of {self.total} elements differ"
        if has_size:
            text += (
                f" by more than the tolerance, at most by {_short(self.max_abs)}, on average by"
                f" {_short(self.mean_abs)}, relative {_short(self.max_relative)}"
            )
        return text


@dataclass(frozen=True)
class Comparison:
    """The result of one comparison of an eager run and a compiled run."""

    differences: tuple[Difference, ...] = ()
    count: int = 0
    """How many leaves differ; ``differences`` has the first of them."""
    leaves: int = 0
    tensors: int = 0
    """How many leaves are tensors that could be compared element by element."""
    is_random: bool = False
    """The calls drew random numbers."""
    unsteady: tuple[str, ...] = ()
    """Leaves that differ between two eager runs, so that they cannot be compared."""
    has_again: bool = False
    """There was a second eager run."""
    has_reference: bool = False
    """There was a float64 run."""
    ranks: tuple[int, ...] = ()
    """In a distributed program: the ranks with wrong compiled results, or the rank of this
    comparison.
    """
    skipped_calls: int = 0
    """Calls that were not compared, because there were too many."""
    skipped_tensors: int = 0
    """Tensors that were not compared, because they were too large or not plain tensors."""
    changing: tuple[str, ...] = ()
    """Leaves that differ between two compiled runs."""

    @property
    def wrong(self) -> tuple[Difference, ...]:
        """The differences in which compiled code is wrong, or may be; differences of numbers and
        certain ones first.
        """
        wrong = [d for d in self.suspects if d.side in ("compiled", "unknown")]
        return tuple(sorted(wrong, key=lambda d: (d.what not in NUMBERS, d.side != "compiled")))

    @property
    def is_nondeterministic(self) -> bool:
        """Whether a wrong result of compiled code is different in a second compiled run, and the
        same in two eager runs.
        """
        return self.has_again and bool({d.name for d in self.wrong}.intersection(self.changing))

    @property
    def suspects(self) -> tuple[Difference, ...]:
        """The differences that further runs may show to be wrong: eager is not the wrong side, and
        gives the same value each time.
        """
        return tuple(
            d for d in self.differences if d.side != "eager" and d.name not in self.unsteady
        )

    @property
    def skipped(self) -> str:
        """A clause that says how much was not compared; empty if everything was."""
        counts = ((self.skipped_calls, "call"), (self.skipped_tensors, "tensor"))
        parts = " and ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n)
        is_one = self.skipped_calls + self.skipped_tensors == 1
        return f"{parts} {'was' if is_one else 'were'} not compared" if parts else ""

    @property
    def summary(self) -> str:
        """One sentence for a run whose results are not wrong."""
        return self._outcome + (f"; {self.skipped}" if self.skipped else "")

    @property
    def _outcome(self) -> str:
        if self.unsteady:
            return (
                f"eager itself gives a different {self.unsteady[0]} each time, so results cannot be"
                " compared"
            )
        if eager := [d for d in self.differences if d.side == "eager"]:
            return (
                "compiled results are nearer to the float64 run than the results of eager are:"
                f" {eager[0]}"
            )
        if unclear := [d for d in self.differences if d.side == "unclear"]:
            return (
                "compiled results differ a little, and there is no float64 run to decide which"
                f" side is wrong: {unclear[0]}"
            )
        if not self.leaves:
            return "no call of a compiled callable returned a result that could be compared"
        if not self.tensors:
            is_one = self.leaves == 1
            return (
                "the only result is not a tensor; its value is equal"
                if is_one
                else f"none of the {self.leaves} results is a tensor; their values are equal"
            )
        one, many = "tensor", f"{self.tensors} tensors"
        are, those = ("is", "that") if self.tensors == 1 else ("are", "those")
        return (
            f"the {one if self.tensors == 1 else many} that it returned, changed or accumulated"
            f" {are} equal to {those} of eager within tolerance"
        )


def comparison_of_event(event: Compared) -> Comparison:
    """Return the comparison of a ``compared`` event, without differences that are damaged."""
    rows = [
        row
        for row in event.differences
        if all(isinstance(row.get(k), str) for k in ("name", "what", "side"))
    ]
    return Comparison(
        tuple(map(_difference, rows)),
        event.count,
        event.leaves,
        event.tensors,
        event.is_random,
        tuple(event.unsteady),
        event.has_again,
        event.has_reference,
        tuple(event.ranks),
        event.skipped_calls,
        event.skipped_tensors,
        tuple(event.changing),
    )


def comparison_of_ranks(events: Iterable[Compared]) -> Comparison | None:
    """Return the worst of the comparisons that the processes of one run made, with all ranks whose
    results are wrong; None if there is no comparison.
    """
    comparisons = sorted(map(comparison_of_event, events), key=lambda c: c.ranks)
    if not comparisons:
        return None
    worst = max(comparisons, key=lambda c: (bool(c.wrong), bool(c.suspects), bool(c.unsteady)))
    ranks = tuple(r for c in comparisons if c.wrong for r in c.ranks)
    return dataclasses.replace(worst, ranks=ranks or worst.ranks)


def first_departure(event: Departs) -> str:
    """Describe a ``departs`` event: the first graph whose results differ from eager by itself, and
    the operator in it.
    """
    text = (
        f"the first graph that departs from eager by itself is {event.cid} ({event.nodes}"
        f" operator{'s' * (event.nodes != 1)})"
    )
    if event.op:
        at = f" at {event.where}" if event.where else ""
        text += f", and the first operator in it is `{event.op}`{at}"
    row = event.difference
    text += f", by its {row.get('name')} ({row.get('what')})" if row else ""
    return f"{text}; {event.custom}" if event.custom else text


def _difference(row: Mapping[str, Any]) -> Difference:
    empty = Difference(0, "", "", "")
    kept: dict[str, object] = {}
    for field in dataclasses.fields(Difference):
        value, default = row.get(field.name), getattr(empty, field.name)
        if isinstance(value, type(default)) or (
            isinstance(default, float) and isinstance(value, (int, str))
        ):
            kept[field.name] = value
    index = tuple(i for i in _list(row.get("index")) if isinstance(i, int))
    changes: dict[str, Any] = {**kept, "index": index}
    return dataclasses.replace(empty, **changes)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []


def difference_family(differences: tuple[Difference, ...]) -> str:
    """Return the kind of the differences, which does not depend on where in a model they are.

    Only those of the first call count: a wrong gradient changes the results of later calls.
    """
    words = "numbers" if differences[0].what in NUMBERS else differences[0].what
    first = min((d.call for d in differences if d.call >= 0), default=-1)
    is_backward = all(d.name.startswith("gradient") for d in differences if d.call == first)
    return f"{words} of the backward" if is_backward else words


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
