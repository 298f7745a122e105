"""Compare the failure of a candidate with the failure that is minimized."""

from __future__ import annotations

import math
from typing import Final, Literal

from reprokit.core.judge.stacks.frames import without_owners
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.verdict_kinds import FAILED_CHECK

ProbeAnswer = Literal["same", "other", "passes", "unresolved"]
"""The same failure, a different one, none, and no answer, which never counts as the failure."""
SAME: Final = "same"
OTHER: Final = "other"
PASSES: Final = "passes"
UNRESOLVED: Final = "unresolved"
HEAP: Final = "damaged heap"
"""What happened where glibc aborted because of its own data."""
CACHED: Final = "cached code"
"""The first words of a failure that needs a cache. Its stage is not a part of the signature."""
ANSWERS: tuple[ProbeAnswer, ...] = (SAME, OTHER, PASSES, UNRESOLVED)
MAX_MISS_RATE = 0.02
"""The probability with which a flaky failure may be missed in a candidate that has it."""
MAX_REPEATS = 20
"""The number of runs of one candidate. A failure that needs more is reduced less."""
COMPILER_PARTS = (
    frozenset({"dynamo-trace", "guards"}),
    frozenset({"export"}),
    frozenset({"backend", "aot", "partition", "fx-passes"}),
    frozenset({"lowering", "scheduler", "codegen"}),
    frozenset({"cpp-build", "triton-compile", "worker-wait"}),
)
"""Phases that count as one part of the compiler, because which of them is active at a deadline is
chance.
"""


def compare_failures(wanted: Signature, verdict: Verdict, signature: Signature) -> ProbeAnswer:
    """Return one of ``ANSWERS`` for a candidate with this verdict and signature; ``wanted`` is the
    signature of the failure that is minimized.
    """
    if verdict.kind == "ok":
        return PASSES
    if is_same_check(wanted, signature):
        return SAME
    if verdict.kind == "unknown":
        return UNRESOLVED
    if signature.algorithm != wanted.algorithm:
        return OTHER
    alike = (
        is_same_wrong_result,
        is_same_slow_compile,
        is_same_growth,
        is_same_own_code,
        is_same_crash,
    )
    is_same = signature.id == wanted.id or any(rule(wanted, signature) for rule in alike)
    return SAME if is_same else OTHER


def has_failure(answer: str) -> bool | None:
    """Return True for a program with the failure, False for one that does not fail at all, and None
    for any other answer.
    """
    return {SAME: True, PASSES: False}.get(answer)


def needs_cache(signature: Signature) -> bool:
    """Return whether a failure shows only in a process that reads the cache of another."""
    return signature.parts.what.startswith(CACHED)


def repeats_for(rate: float) -> int:
    """Return the number of runs without the failure that show that a candidate does not have it,
    for a failure that occurs in ``rate`` of the runs.

    This is a sequential test with one hypothesis: the failure occurs with at least its known rate,
    or half of it if it is rare. One run with the failure decides, because signatures do not agree
    by chance.
    """
    if rate >= 1.0:
        return 1
    min_rate = max(rate, 0.02) / (1.0 if rate >= 0.3 else 2.0)
    return min(math.ceil(math.log(MAX_MISS_RATE) / math.log(1.0 - min_rate)), MAX_REPEATS)


def is_found_by_chance(signature: Signature) -> bool:
    """Return whether a run may pass although the failure is there: a damaged heap ends a program
    wherever it is found.
    """
    return signature.parts.what.endswith(HEAP)


def is_same_wrong_result(one: Signature, two: Signature) -> bool:
    """Return whether both are wrong results of one family. A candidate is not checked for where
    they begin; only the program that is proved is.
    """
    a, b = one.parts, two.parts
    if a.kind != "wrong-result" or (a.kind, a.what) != (b.kind, b.what):
        return False
    is_one_phase = a.phase == b.phase or not (a.phase and b.phase)
    return is_one_phase and (a.place == b.place or not (a.place and b.place))


def is_located(signature: Signature) -> bool:
    """Return whether it is known where in the compiler wrong results begin."""
    return signature.parts.kind == "wrong-result" and bool(signature.parts.phase)


def begins_alike(wanted: Signature, signature: Signature) -> bool:
    """Return whether the wrong results of ``signature``, which is located, begin in the same phase
    and operator as those of ``wanted``.

    If the operator of ``wanted`` is not known, the phase decides.
    """
    a, b = wanted.parts, signature.parts
    is_one_kind = (a.kind, a.phase, a.what) == (b.kind, b.phase, b.what)
    is_one_place = not a.place or a.place == b.place
    return is_one_kind and signature.algorithm == wanted.algorithm and is_one_place


def is_same_check(one: Signature, two: Signature) -> bool:
    """Return whether ``one`` is a failed check of a program, and ``two`` may be the same.

    Whether it passes without torch.compile is a different question.
    """
    a, b = one.parts, two.parts
    is_own = b.kind in (FAILED_CHECK, "error-in-eager") or (not b.phase and b.kind != "ok")
    is_one_check = one.algorithm == two.algorithm and a.what == b.what
    return a.kind == FAILED_CHECK and is_own and is_one_check


def is_same_slow_compile(one: Signature, two: Signature) -> bool:
    """Return whether ``one`` is a slow compile, and ``two`` reached its deadline in the same part
    of the compiler, whether it advanced or not.
    """
    a, b = one.parts, two.parts
    return (
        a.kind == "slow-compile"
        and b.kind in ("slow-compile", "hang")
        and compiler_part(a.phase) == compiler_part(b.phase)
    )


def is_same_growth(one: Signature, two: Signature) -> bool:
    """Return whether the compile time of both grows superlinearly in the same part of the compiler.
    The growth laws are not compared, because a few sizes do not determine them.
    """
    a, b = one.parts, two.parts
    is_one_part = compiler_part(a.phase) == compiler_part(b.phase)
    return a.kind == b.kind == "superlinear-compile" and is_one_part


def is_same_crash(one: Signature, two: Signature) -> bool:
    """Return whether both are one crash as far as is known: only one of them has a run with
    sanitizers. A candidate has none. Without that run, a damaged heap is in no phase.
    """
    a, b = one.parts, two.parts
    is_one_known = bool(a.site) != bool(b.site)
    if is_one_known and is_found_by_chance(one):
        return (a.kind, a.what) == (b.kind, b.what)
    return is_one_known and a.title_without_site == b.title_without_site


def is_same_own_code(one: Signature, two: Signature) -> bool:
    """Return whether both are the same but for the modules and classes of the user's functions."""
    return without_owners(one.title) == without_owners(two.title)


def compiler_part(phase: str) -> frozenset[str]:
    """Return the phases that are in the same part of the compiler as ``phase``."""
    return next((phases for phases in COMPILER_PARTS if phase in phases), frozenset({phase}))
