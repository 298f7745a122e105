"""The conditions of a failure: what else must be as it was when the failure occurred.

Each condition can be changed by lines of the program or by environment variables. The search asks
first whether the failure occurs with all conditions changed: then it needs none of them. Otherwise
it looks for the smallest set of conditions that must not change, by delta debugging.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.reduce import subsets
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


@dataclass(frozen=True)
class Machine:
    """What the conditions need to know of the machine on which the failure occurred."""

    capability: str = "DEFAULT"
    """``torch.backends.cpu.get_cpu_capability()``: DEFAULT, AVX2, AVX512 and others."""
    threads: int = 1
    """OpenMP threads of torch."""
    cpus: int = 1
    """CPUs on which a process may run."""
    cpp_compilers: tuple[str, ...] = ()
    """Other C++ compilers than the default one."""

    @property
    def instructions(self) -> str:
        """The vector instructions as their makers write them."""
        return self.capability.replace("AVX512", "AVX-512")


_NO_VECTORS = Change("none", ("torch._inductor.config.cpp.simdlen = 0",))
_AVX2 = Change("AVX2", ("torch._inductor.config.cpp.simdlen = 256",))
DYNAMIC_SHAPES = "dynamic shapes"
LIKELY = ("default dtype", "random seed")
"""The conditions that change the values of inputs. They are asked before the others."""
INSTRUCTIONS = "vector instructions"
OF_ATEN = "vector instructions of ATen and Inductor"
_OF_ENVIRONMENT = (
    Condition("hash seed", "random", (Change("1", variables={"PYTHONHASHSEED": "1"}),)),
    Condition(
        "compile workers",
        "several processes",
        (Change("none", variables={"TORCHINDUCTOR_COMPILE_THREADS": "1"}),),
    ),
    Condition(
        "contents of new memory",
        "as the allocator leaves it",
        (Change("filled", variables={"MALLOC_PERTURB_": "165"}),),
    ),
)
CHANGED_VARIABLES = {
    **{k: v for c in _OF_ENVIRONMENT for k, v in c.changes[0].variables.items()},
    "ATEN_CPU_CAPABILITY": "default",
}
"""The variables with which one run of a proof runs: a failure that it shows needs none of the
conditions of :func:`conditions_of_environment`.
"""
_CAPABILITY = "torch.backends.cpu.get_cpu_capability()"


def conditions_of(machine: Machine, text: str) -> tuple[Condition, ...]:
    """Return the conditions that can be changed for a program on a machine."""
    found = []
    if machine.capability != "DEFAULT":
        is_wide = machine.capability.startswith("AVX512")
        found.append(
            Condition(
                INSTRUCTIONS,
                machine.instructions,
                (_NO_VECTORS, *([_AVX2] * is_wide)),
                checks=_checks(machine),
            )
        )
    many, one = f"{machine.threads} threads", "1 thread"
    other = 1 if machine.threads > 1 else 2
    found.append(
        Condition(
            "OpenMP threads",
            many if machine.threads > 1 else one,
            tuple(
                Change(f"{n} thread{'s' * (n > 1)}", (f"torch.set_num_threads({n})",))
                for n in (other, 2 * machine.cpus + 1)
            ),
            sets=(f"torch.set_num_threads({machine.threads})",),
        )
    )
    if machine.cpus > 1:
        found.append(
            Condition(
                "visible CPUs",
                f"{machine.cpus} CPUs",
                (
                    Change(
                        "1 CPU",
                        (
                            "import os",
                            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
                        ),
                    ),
                ),
                checks={"len(__import__('os').sched_getaffinity(0)) < 2": "two CPUs"},
            )
        )
    found.append(
        Condition("random seed", "the default seed", (Change("seed 1", ("torch.manual_seed(1)",)),))
    )
    found += [
        _setting("default dtype", "float32", "float64", "torch.set_default_dtype(torch.float64)"),
        _setting("denormal numbers", "kept", "flushed to zero", "torch.set_flush_denormal(True)"),
        _setting(
            "fast math",
            "off",
            "on",
            "torch._inductor.config.cpp.enable_unsafe_math_opt_flag = True",
        ),
        _setting(
            "compiler caches",
            "on",
            "off",
            "torch._inductor.config.force_disable_caches = True",
            "torch._inductor.config.force_disable_caches = False",
        ),
        _setting(
            DYNAMIC_SHAPES,
            "static first",
            "dynamic from the start",
            "torch._dynamo.config.assume_static_by_default = False",
        ),
    ]
    found += [
        _setting(
            f"C++ compiler ({path})", "g++", path, f"torch._inductor.config.cpp.cxx = ({path!r},)"
        )
        for path in machine.cpp_compilers
    ]
    return tuple(c for c in found if not _is_set_by(text, c))


def _is_set_by(text: str, condition: Condition) -> bool:
    """Return whether the program sets the condition itself, so that lines before do not matter."""
    if condition.name == DYNAMIC_SHAPES and "dynamic=" in text:
        return True
    line = condition.changes[0].lines[-1]
    name, _, _ = line.partition("(")
    if name != line:
        return f"{name}(" in text
    return re.search(rf"{re.escape(line.partition(' =')[0])}\s*=(?!=)", text) is not None


def conditions_of_environment(machine: Machine) -> tuple[Condition, ...]:
    """Return the conditions that only a fresh process can change."""
    if machine.capability == "DEFAULT":
        return _OF_ENVIRONMENT
    levels = ("default", *(["avx2"] * machine.capability.startswith("AVX512")))
    changes = tuple(
        Change({"default": "none"}.get(level, level), variables={"ATEN_CPU_CAPABILITY": level})
        for level in levels
    )
    instructions = Condition(OF_ATEN, machine.instructions, changes, checks=_checks(machine))
    return (*_OF_ENVIRONMENT, instructions)


def _checks(machine: Machine) -> dict[str, str]:
    return {
        f'not {_CAPABILITY}.startswith("{machine.capability[:6]}")': machine.instructions,
        f'{_CAPABILITY} == "DEFAULT"': "vector instructions",
    }


def _setting(name: str, value: str, changed: str, line: str, sets: str = "") -> Condition:
    return Condition(name, value, (Change(changed, (line,)),), (sets,) if sets else ())


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
    """The conditions of a failure, and the runs that showed them."""

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
        needs = [f"{name}: {value}" for name, value in self.needed]
        rows = [f"Needs: {', '.join(needs)}."] if needs else []
        if self.together:
            each = ", ".join(f"{name}: {value}" for name, value in self.together)
            rows.append(f"Needs at least one of: {each}.")
        if self.irrelevant:
            rows.append(f"Does not depend on: {', '.join(self.irrelevant)}.")
        if self.unknown:
            rows.append(f"Not known: {', '.join(self.unknown)}.")
        return " ".join(rows)

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
        likely = [c for c in conditions if c.name in LIKELY]
        kept = likely if likely and holds(likely) else list(conditions)
        kept = subsets.ddmin(kept, holds)
    alone = {c.name: ask((c,)) for c in kept}
    either = _either(
        conditions, [c for c in kept if alone[c.name] == same_failure.SAME], alone, ask
    )
    of_kept = {
        name: tuple((c.name, c.value) for c in kept if alone[c.name] == name)
        for name in same_failure.ANSWERS
    }
    is_known = {same_failure.SAME, same_failure.PASSES}
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
