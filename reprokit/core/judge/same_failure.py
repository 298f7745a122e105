"""The answers to the one question of minimization: does this candidate still show the same
failure?
"""

from __future__ import annotations

import math

from reprokit.core.records.finding import Signature, Verdict

SAME, OTHER, PASSES, UNRESOLVED = "same", "other", "passes", "unresolved"
"""The same failure; another one; none; and no answer, which is never taken for the failure."""

ANSWERS = (SAME, OTHER, PASSES, UNRESOLVED)
MISTAKE = 0.02
"""How often a flaky failure may be missed in a candidate that has it."""
MOST_REPEATS = 20
"""A failure that is rarer than this allows for is reduced less, not for longer."""
PARTS = (
    frozenset({"dynamo-trace", "guards"}),
    frozenset({"backend", "aot", "partition", "fx-passes"}),
    frozenset({"lowering", "scheduler", "codegen"}),
    frozenset({"cpp-build", "triton-compile", "worker-wait"}),
)
"""Phases that are one part of the compiler: which of them a deadline meets is chance."""


def compare_failures(wanted: Signature, verdict: Verdict, signature: Signature) -> str:
    """Compare what a candidate did with the failure that is looked for; only an equal signature is
    the same.
    """
    if verdict.kind == "ok":
        return PASSES
    if verdict.kind == "unknown":
        return UNRESOLVED
    if signature.algorithm != wanted.algorithm:
        return OTHER
    alike = (is_raced_abort, is_same_wrong_result, is_same_slow_compile, is_same_growth)
    is_same = signature.id == wanted.id or any(rule(wanted, signature) for rule in alike)
    return SAME if is_same else OTHER


def is_raced_abort(one: Signature, two: Signature) -> bool:
    """Both are one C++ abort: of two threads that throw at once, the runtime tells the message, its
    type, or neither.
    """
    told = []
    for title in (one.title, two.title):
        head, is_abort, said = title.partition(" | SIGABRT std::")
        if not is_abort or not head.startswith("crash: "):
            return False
        told.append((head, *said.partition(": ")[::2]))
    (head, type_, message), (other_head, other_type, other_message) = told
    is_one_type = type_ == other_type or "terminate" in (type_, other_type)
    return (
        head == other_head
        and is_one_type
        and (message == other_message or not (message and other_message))
    )


def repeats_for(rate: float) -> int:
    """How many runs without the failure say that a candidate does not have it, when it shows in
    ``rate`` of the runs.

    A sequential test with one hypothesis: the failure is there at no less than half its known rate.
    Runs without it are evidence against; one run with it decides, since signatures do not agree by
    chance.
    """
    if rate >= 1.0:
        return 1
    least = max(rate, 0.02) / (1.0 if rate >= 0.3 else 2.0)
    return min(math.ceil(math.log(MISTAKE) / math.log(1.0 - least)), MOST_REPEATS)


def is_same_wrong_result(one: Signature, two: Signature) -> bool:
    """Both are wrong results of one family. Where they begin is asked of the program that is
    proved, not of each candidate.
    """
    told = []
    for title in (one.title, two.title):
        kind, phase, what = _parts(title)
        told.append((kind, phase, *what.partition(" @ ")[::2]))
    (kind, phase, what, op), (other_kind, other_phase, other_what, other_op) = told
    if kind != "wrong-result" or (kind, what) != (other_kind, other_what):
        return False
    is_one_phase = phase == other_phase or "no phase" in (phase, other_phase)
    return is_one_phase and (op == other_op or not (op and other_op))


def is_located(signature: Signature) -> bool:
    """It is known where in the compiler wrong results begin."""
    kind, phase = kind_and_phase(signature)
    return kind == "wrong-result" and phase != "no phase"


def begins_alike(wanted: Signature, found: Signature) -> bool:
    """Wrong results of ``found``, whose begin is known, begin where those of ``wanted`` do: one
    phase, one operator.

    Where the operator of ``wanted`` is not known, the phase decides.
    """
    (kind, phase, what), (other_kind, other_phase, other_what) = (
        _parts(wanted.title),
        _parts(found.title),
    )
    family, _, op = what.partition(" @ ")
    other_family, _, other_op = other_what.partition(" @ ")
    is_one_kind = (kind, phase, family) == (other_kind, other_phase, other_family)
    return is_one_kind and found.algorithm == wanted.algorithm and (not op or op == other_op)


def is_same_slow_compile(one: Signature, two: Signature) -> bool:
    """``one`` is a slow compile, and ``two`` met its deadline in the same part of the compiler,
    advancing or not.
    """
    (kind, phase), (other, other_phase) = kind_and_phase(one), kind_and_phase(two)
    return (
        kind == "slow-compile"
        and other in ("slow-compile", "hang")
        and compiler_part(phase) == compiler_part(other_phase)
    )


def is_same_growth(one: Signature, two: Signature) -> bool:
    """The compile of both grows faster than their sizes, in one part of the compiler; few sizes do
    not tell a law.
    """
    (kind, phase), (other, other_phase) = kind_and_phase(one), kind_and_phase(two)
    return kind == other == "superlinear-compile" and compiler_part(phase) == compiler_part(
        other_phase
    )


def compiler_part(phase: str) -> frozenset[str]:
    """The phases that are one part of the compiler with ``phase``."""
    return next((phases for phases in PARTS if phase in phases), frozenset({phase}))


def kind_and_phase(signature: Signature) -> tuple[str, str]:
    """Kind and phase, of a title such as ``hang: fx-passes | frames``."""
    return _parts(signature.title)[:2]


def _parts(title: str) -> tuple[str, str, str]:
    kind, _, rest = title.partition(": ")
    phase, _, what = rest.partition(" | ")
    return kind, phase, what
