"""Whether compiled results are those of eager, in the words of one comparison: what differs, where,
and which side is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .contract.events import Compared, Departs

NUMBERS = frozenset({"values", "nan", "inf", "integers", "value"})
"""One wrong number is another kind of wrong number a few operators further: they make one
family.
"""
ROLES = ("eager", "compiled", "again", "float64")
"""The runs that a comparison has, in their order; the last two are asked when the first two
differ.
"""

SEED = 20
"""Each run of a comparison draws from this one, where the program sets none."""


@dataclass(frozen=True)
class Difference:
    """One leaf of the results that differs between eager and compiled."""

    call: int
    """Which call of a compiled callable; -1 for what stands at the end of the program, such as
    gradients.
    """
    name: str
    """``output[0]``, ``argument[1]`` (as the call left it), ``gradient of ...``, ``buffer ...``."""
    what: str
    """``values``, ``nan``, ``inf``, ``integers``, ``signed-zero``, ``dtype``, ``shape``,
    ``stride``, ``aliasing``, ``value`` (of no tensor) or ``missing``.
    """
    side: str
    """Which is wrong: ``compiled``, ``eager``, ``unknown`` where there is no float64 run to tell,
    or ``unclear`` where it is so little that it may be noise.
    """
    expected: str = ""
    """Eager's, at the worst place."""
    got: str = ""
    """Compiled code's, there."""
    reference: str = ""
    """That of float64, there."""
    index: tuple[int, ...] = ()
    count: int = 0
    """Elements beyond the tolerance, of ``total``."""
    total: int = 0
    max_abs: float | str = 0.0
    mean_abs: float | str = 0.0
    max_relative: float | str = 0.0

    def __str__(self) -> str:
        """One line: where, what, how much."""
        at = f" at {list(self.index)}" if self.index else ""
        in_call = f" of call {self.call}" if self.call > 0 else ""
        text = (
            f"{self.name}{in_call}: {self.what}{at}: eager gives {self.expected}, compiled code"
            f" {self.got}"
        )
        if self.reference:
            text += f", float64 {self.reference}"
        if self.total:
            text += f"; {self.count} of {self.total} elements beyond the tolerance"
        if self.what in ("values", "integers"):
            text += (
                f", error at most {_short(self.max_abs)}, on average {_short(self.mean_abs)},"
                f" relative {_short(self.max_relative)}"
            )
        return text


@dataclass(frozen=True)
class Comparison:
    """What one comparison of an eager and a compiled run came to."""

    differences: tuple[Difference, ...] = ()
    count: int = 0
    """How many leaves differ; ``differences`` has the first of them."""
    leaves: int = 0
    tensors: int = 0
    """How many leaves are tensors that could be compared element by element."""
    is_random: bool = False
    """The calls drew random numbers."""
    unsteady: tuple[str, ...] = ()
    """Leaves that a second eager run gave otherwise, so that no comparison says anything."""
    has_again: bool = False
    has_reference: bool = False
    ranks: tuple[int, ...] = ()
    """Where there are several: those on which compiled results are wrong, or the one that this is
    about.
    """
    skipped_calls: int = 0
    """Calls whose results were not kept, and so not compared: they were too many."""
    skipped_tensors: int = 0
    """Tensors that were not kept, and so not compared: they were too large, or no plain tensors."""

    @property
    def wrong(self) -> tuple[Difference, ...]:
        """Those in which compiled code is the wrong side, or may be; the most telling first."""
        told = [d for d in self.suspects if d.side in ("compiled", "unknown")]
        return tuple(sorted(told, key=lambda d: (d.what not in NUMBERS, d.side != "compiled")))

    @property
    def suspects(self) -> tuple[Difference, ...]:
        """Those that may turn out to be wrong when more runs are asked; what eager gives otherwise
        each time is none.
        """
        return tuple(
            d for d in self.differences if d.side != "eager" and d.name not in self.unsteady
        )

    @property
    def skipped(self) -> str:
        """How much was not compared, as a clause; empty where everything was."""
        counts = ((self.skipped_calls, "call"), (self.skipped_tensors, "tensor"))
        told = " and ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n)
        is_one = self.skipped_calls + self.skipped_tensors == 1
        return f"{told} {'was' if is_one else 'were'} not compared" if told else ""

    @property
    def says(self) -> str:
        """One sentence for a run whose results are not wrong."""
        return self._says + (f"; {self.skipped}" if self.skipped else "")

    @property
    def _says(self) -> str:
        if self.unsteady:
            return (
                f"eager itself gives another {self.unsteady[0]} each time, so results cannot be"
                " compared"
            )
        if eager := [d for d in self.differences if d.side == "eager"]:
            return (
                "compiled results are nearer to float64 than eager's, which is the side that"
                f" departs: {eager[0]}"
            )
        if unclear := [d for d in self.differences if d.side == "unclear"]:
            return (
                "compiled results differ a little, and there is no float64 run to judge by:"
                f" {unclear[0]}"
            )
        if not self.leaves:
            return "no call of a compiled callable gave a result that could be compared"
        if not self.tensors:
            return f"the {self.leaves} results are no tensors; their values are equal"
        return (
            f"{self.tensors} tensors that it gave, changed or accumulated are eager's within"
            " tolerance"
        )


def comparison_of_event(event: Compared) -> Comparison:
    """The comparison of a ``compared`` event; a difference that is damaged is left out."""
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
    )


def comparison_of_ranks(events: Iterable[Compared]) -> Comparison | None:
    """What the processes of one run compared, each for itself: one that is wrong where there is
    one, and which are.
    """
    told = sorted(map(comparison_of_event, events), key=lambda c: c.ranks)
    if not told:
        return None
    worst = max(told, key=lambda c: (bool(c.wrong), bool(c.suspects), bool(c.unsteady)))
    ranks = tuple(r for c in told if c.wrong for r in c.ranks)
    return dataclasses.replace(worst, ranks=ranks or worst.ranks)


def first_departure(event: Departs) -> str:
    """Words for a ``departs`` event: the first graph that gives other results than eager by itself,
    and where in it.
    """
    text = (
        f"the first graph that departs from eager by itself is {event.cid} ({event.nodes}"
        " operators)"
    )
    if event.op:
        at = f" at {event.where}" if event.where else ""
        text += f", and the first operator in it is `{event.op}`{at}"
    row = event.difference
    text += f", by its {row.get('name')} ({row.get('what')})" if row else ""
    return f"{text}; {event.custom}" if event.custom else text


def _difference(row: Mapping[str, Any]) -> Difference:
    usual = Difference(0, "", "", "")
    kept: dict[str, Any] = {}
    for field in dataclasses.fields(Difference):
        value, like = row.get(field.name), getattr(usual, field.name)
        if isinstance(value, type(like)) or (
            isinstance(like, float) and isinstance(value, (int, str))
        ):
            kept[field.name] = value
    index = tuple(i for i in _list(row.get("index")) if isinstance(i, int))
    return dataclasses.replace(usual, **{**kept, "index": index})


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def difference_family(differences: tuple[Difference, ...]) -> str:
    """What kind of wrong it is, wherever in a model it is looked at."""
    words = "numbers" if differences[0].what in NUMBERS else differences[0].what
    is_backward = all(d.name.startswith("gradient") for d in differences)
    return f"{words} of the backward" if is_backward else words


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"
