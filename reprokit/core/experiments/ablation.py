"""The ablation: find the first part of the compiler that causes the failure, and the switches that
avoid it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from reprokit.core.judge import same_failure
from reprokit.core.records.claims import (
    Check,
    Claim,
    How,
    PackedProgram,
    Subject,
    UsersRun,
    claim,
)
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import from_json, to_json
from reprokit.core.shared.source import entry_programs


@dataclass(frozen=True)
class CompileVariant:
    """One way to compile."""

    name: str
    group: str
    """``own``; ``backends``, of which each does more than the one before; ``entries``; ``modes``;
    ``switches``; or ``changes`` of the program.
    """
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The changes: ``compile`` (arguments of ``torch.compile``), ``configs`` (settings by their
    full names), ``entry`` (how the compiler is entered), ``dynamic_sizes`` and
    ``static_inputs`` (marked tensors, by name). ``replaces`` are the changed lines of a program,
    old -> new, and ``moves`` is a line that runs outside of its compiled function.
    """
    part: str = ""
    """For a backend: the part of the compiler that it adds. For an entry: the entry."""
    program: str = ""
    """The text of a changed program; empty for the program as it is."""


def _backend(name: str, part: str) -> CompileVariant:
    return CompileVariant(f'backend="{name}"', "backends", {"compile": {"backend": name}}, part)


def _entry(name: str, entry: str) -> CompileVariant:
    return CompileVariant(name, "entries", {"entry": entry}, entry)


def _mode(name: str) -> CompileVariant:
    return CompileVariant(
        f'mode="{name}"', "modes", {"compile": {"mode": name, "backend": "inductor"}}
    )


def _switch(name: str, compile: Mapping[str, Any] | None = None, **configs: Any) -> CompileVariant:
    full = {f"torch.{key.replace('__', '.')}": value for key, value in configs.items()}
    return CompileVariant(name, "switches", {"compile": dict(compile or {}), "configs": full})


STATIC = "dynamic=False"
WITHOUT_STATIC = CompileVariant("dynamic=None", "switches", {"compile": {"dynamic": None}})
"""It tells recompiles that the program asks for from others."""
CHANGES = "changes"
"""The group of changed programs."""
OWN_BACKEND = CompileVariant("the program's own backend", "own")
OWN_PASSES = CompileVariant("without the program's own passes", "own", {"without_passes": True})
EAGER = CompileVariant("no torch.compile", "backends", part="eager")
ENTRIES = (
    _entry("torch.export", entry_programs.EXPORT),
    _entry("AOTInductor", entry_programs.AOTINDUCTOR),
    _entry("standalone_compile", entry_programs.STANDALONE),
)
INDUCTOR = _backend("inductor", "inductor")
VARIANTS = (
    EAGER,
    _backend("eager", "dynamo"),
    _backend("aot_eager", "aot"),
    _backend("aot_eager_decomp_partition", "decompositions"),
    INDUCTOR,
    *ENTRIES,
    *map(_mode, ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")),
    _switch("dynamic=False", {"dynamic": False}),
    _switch("dynamic=True", {"dynamic": True}),
    _switch("fullgraph=True", {"fullgraph": True}),
    _switch(
        "no caches",
        _inductor__config__fx_graph_cache=False,
        _functorch__config__enable_autograd_cache=False,
    ),
    _switch("one compile thread", _inductor__config__compile_threads=1),
    _switch(
        "no fusion", _inductor__config__max_fusion_size=1, _inductor__config__epilogue_fusion=False
    ),
    _switch("no pattern matcher", _inductor__config__pattern_matcher=False),
    _switch("no vectorised C++", _inductor__config__cpp__simdlen=0),
    _switch("one OpenMP thread in C++", _inductor__config__cpp__threads=1),
    _switch("rounding as eager does", _inductor__config__emulate_precision_casts=True),
    _switch("no layout optimization", _inductor__config__layout_optimization=False),
)
"""All ablation steps except those for the program's own code. A capture runs those of ``backends``
and ``dynamic=False``.
"""


BACKENDS = tuple(variant for variant in VARIANTS if variant.group == "backends")
TRACED = frozenset({"dynamo-trace", "guards"})
"""Phases of failures that every backend shows; the backend "eager" is the fastest to try."""
KNOWN_ANSWERS = (same_failure.SAME, same_failure.PASSES)
"""Answers that say what a backend does."""

LABELS = {
    "dynamo": "module: dynamo",
    "aot": "module: pt2-dispatcher",
    "decompositions": "module: pt2-dispatcher",
    "inductor": "module: inductor",
    entry_programs.EXPORT: "oncall: export",
    entry_programs.AOTINDUCTOR: "module: aotinductor",
    entry_programs.STANDALONE: "module: inductor",
}
"""Part of the compiler, or entry -> the label that maintainers give a failure in it."""


def own_variants(seen: Observation) -> tuple[CompileVariant, ...]:
    """Return the ablation steps for the program's own backend, passes and entry, which run
    first.
    """
    own = (OWN_BACKEND,) * bool(seen.own_backend) + (OWN_PASSES,) * bool(seen.own_passes)
    return own + tuple(variant for variant in ENTRIES if variant.part == seen.entry)


def faster_overrides(seen: Observation, part: str) -> Mapping[str, Any]:
    """Return the overrides with which a program whose failure begins in ``part`` compiles faster.

    A program that exports its model enters through torch.compile, if Inductor has the failure
    there too. AOTInductor takes several times longer, and has no fallback for many operators, so
    that it cannot skip their lowerings.
    """
    is_exported = seen.entry in entry_programs.WITHOUT_DYNAMO
    return INDUCTOR.overrides if is_exported and part == INDUCTOR.part else {}


@dataclass(frozen=True)
class AblationStep:
    """The result of one ablation step."""

    name: str
    group: str
    answer: str
    """``same``, ``other``, ``passes`` or ``unresolved``: one of ``same_failure.ANSWERS``."""
    verdict: str
    title: str
    """The title of the signature."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What it changed, as in :class:`CompileVariant`."""


@dataclass(frozen=True)
class Ablation:
    """The results of an ablation."""

    about: ClassVar[type[Subject]] = Subject
    packed_as: ClassVar[str] = run_names.ABLATION_FILE
    subject: ClassVar[str] = ""
    """What was compiled: the user's whole ``program``, or a recorded or reduced ``part`` of it."""
    it: ClassVar[str] = ""
    """The subject of the sentence."""

    steps: tuple[AblationStep, ...] = ()
    blamed: str = ""
    """A clause about the single pass, lowering or operator that causes the failure; empty if none
    is known.
    """
    responsible: str = "torch"
    """The responsible party of the verdict: only a failure of torch gets a label."""

    def answer_of(self, name: str) -> str:
        """Return the answer of an ablation step; empty if the step was not run."""
        return next((s.answer for s in self.steps if s.name == name), "")

    @property
    def first_failing(self) -> CompileVariant | None:
        """The first backend that has the same failure, or the first entry if no backend has it."""
        tried = (*BACKENDS, *ENTRIES)
        same = same_failure.SAME
        return next((v for v in tried if self.answer_of(v.name) == same), None)

    @property
    def last_passing(self) -> CompileVariant | None:
        """The backend before the first failing one, if the program passes with it. The run without
        torch.compile is none.
        """
        first = self.first_failing
        if first not in BACKENDS[2:]:
            return None
        before = BACKENDS[BACKENDS.index(first) - 1]
        return before if self.answer_of(before.name) == same_failure.PASSES else None

    def differing_backend(self, other: Ablation) -> CompileVariant | None:
        """Return the first backend that fails in one of the programs and passes in the other.

        Steps without an answer, and those of one of them only, say nothing.
        """
        for variant in BACKENDS:
            answers = {self.answer_of(variant.name), other.answer_of(variant.name)}
            if answers == set(KNOWN_ANSWERS):
                return variant
        return None

    def difference(self, other: Ablation) -> str:
        """Return how the backends that fail differ from those of ``other``, as a clause; empty if
        they do not.
        """
        variant = self.differing_backend(other)
        if variant is None:
            return ""
        fails = other.answer_of(variant.name) == same_failure.SAME
        words = ("passes", "fails") if fails else ("fails", "passes")
        return f"with {variant.name} it {words[0]}, and the original {words[1]}"

    @property
    def needs(self) -> str:
        """The part that the failure needs: the program's own ``passes``, ``backend`` or
        ``dynamic=False``, or only ``torch``; empty if it is not known.
        """
        if self.answer_of(WITHOUT_STATIC.name) == same_failure.PASSES:
            return STATIC
        without = self.answer_of(OWN_PASSES.name)
        if without == same_failure.PASSES:
            return "passes"
        if self.first_failing is not None:
            return "torch" if without in ("", same_failure.SAME) else ""
        is_alone = same_failure.PASSES in {s.answer for s in self.steps if s.group == "backends"}
        fails_with_own = self.answer_of(OWN_BACKEND.name) == same_failure.SAME
        return "backend" if is_alone and fails_with_own else ""

    @property
    def own(self) -> str:
        """The part of the program's own code that the failure needs; empty if it needs none, or if
        that is not known.
        """
        return self.needs if self.needs != "torch" else ""

    @property
    def label(self) -> str:
        """The maintainers' label; empty if torch is not responsible, or if no backend or eager
        itself has the failure.
        """
        first = self.first_failing
        if self.own or self.responsible != "torch" or first is None or self.fails_differently:
            return ""
        is_entry = first in ENTRIES
        if not is_entry and self.answer_of("dynamic=False") == same_failure.PASSES:
            return "module: dynamic shapes"
        return LABELS.get(first.part, "")

    @property
    def fails_differently(self) -> tuple[str, ...]:
        """The backends with less work than the first failing one, with which the program fails in
        a different way, so that it is not known where the failure begins.
        """
        first = self.first_failing
        before = BACKENDS[1 : BACKENDS.index(first)] if first in BACKENDS else ()
        return tuple(v.name for v in before if self.answer_of(v.name) == same_failure.OTHER)

    @property
    def cures(self) -> tuple[str, ...]:
        """Entries, modes and switches with which the program passes; torch.export generates no
        code.
        """
        return tuple(
            s.name
            for s in self.steps
            if s.group not in ("own", "backends")
            and s.name != ENTRIES[0].name
            and s.answer == same_failure.PASSES
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for packs and ``--json``."""
        return {
            "sentence": self.sentence,
            "first": self.first_failing.name if self.first_failing else None,
            "label": self.label,
            "blamed": self.blamed,
            "own": self.own,
            "subject": self.subject,
            "responsible": self.responsible,
            "cures": list(self.cures),
            "steps": [to_json(s) for s in self.steps],
        }

    @property
    def sentence(self) -> str:
        """The result in one sentence: the first failing backend, with the evidence."""
        first = OWN_BACKEND if self.own == "backend" else self.first_failing
        if first is None:
            return "No ablation step shows the same failure." if self.steps else ""
        if first is EAGER:
            return f"{self.it} fails without torch.compile too."
        before = [
            s.name for s in self.steps if s.group == "backends" and s.answer == same_failure.PASSES
        ]
        if first in ENTRIES and self.answer_of(INDUCTOR.name) == same_failure.PASSES:
            before = ["torch.compile"]
        text = f"{self.it} fails with {first.name}"
        text += f" and passes with {_and(before)}" if before else ""
        if self.fails_differently:
            text += f", and in a different way with {_and([*self.fails_differently])}"
        text += f"; it passes {OWN_PASSES.name}" if self.own == "passes" else ""
        text += f", so its label is `{self.label}`" if self.label else ""
        text += f"; {self.blamed}" if self.blamed else ""
        also = [v.name for v in ENTRIES if v is not first and self.answer_of(v.name) == "same"]
        text += f"; it fails with {_and(also)} too" if also else ""
        if self.cures:
            changes = [s.name for s in self.steps if s.group == CHANGES and s.name in self.cures]
            others = [name for name in self.cures if name not in changes]
            ways = [*changes, *[_and(others)] * bool(others)]
            text += "; it passes with " + ", and with ".join(ways)
        return text + "."

    @property
    def checks(self) -> tuple[Check, ...]:
        """The runs that check ``sentence``."""
        kinds: Mapping[str, How] = {same_failure.SAME: "fails", same_failure.PASSES: "passes"}
        named = re.fullmatch(r"it disappears without the ([\w -]+) `(.+)`", self.blamed)
        without = [Check("passes", {"without_application": named.groups()})] if named else []
        return (
            *without,
            *(
                Check(kinds[step.answer], {"with": step.name, **step.overrides})
                for step in self.steps
                if step.answer in kinds and step.name in self.sentence
            ),
        )

    def of_part(self) -> PartAblation:
        """Return the same results, of a program that is only a part of the user's."""
        return PartAblation(self.steps, self.blamed, self.responsible)


class ProgramAblation(Ablation):
    """The results for the user's whole program."""

    about: ClassVar[type[UsersRun]] = UsersRun
    subject = "program"
    it = "It"

    @property
    def claim(self) -> Claim[UsersRun]:
        """``sentence``, with the runs that check it."""
        return claim(self.sentence, self, *self.checks)


class PartAblation(Ablation):
    """The results for a part of the user's program."""

    about: ClassVar[type[PackedProgram]] = PackedProgram
    subject = "part"
    it = "A part of it"

    @property
    def claim(self) -> Claim[PackedProgram]:
        """``sentence``, with the runs that check it."""
        return claim(self.sentence, self, *self.checks)


AnyAblation = ProgramAblation | PartAblation
NOTHING_TRIED = ProgramAblation()


def read_ablation(document: Mapping[str, object]) -> AnyAblation:
    """Read the result of ``to_json``; raises ValueError if it is damaged."""
    kind = PartAblation if document.get("subject") == "part" else ProgramAblation
    ablation: AnyAblation = from_json(kind, document)
    return ablation


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
