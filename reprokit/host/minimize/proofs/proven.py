"""Repros and candidates: a program is a repro only with a proof.

``repro.py`` of a pack and the heading "Repro" of an issue take only a :class:`Repro`. A program
becomes one only with the proof that exactly this text was run alone and failed in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprokit.core.experiments import rates
from reprokit.core.judge import same_failure
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.process_state import describe_exit
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.host.minimize.proofs.proof import Proof, program_digest

DEPENDS_ON_VALUES = (
    "the failure depends on the values of the inputs, which the program does not have"
)


class Unproven(ValueError):
    """The program is not a repro; the message says why."""


@dataclass(frozen=True)
class Repro:
    """A program that was run as it is, without reprokit, and failed in the same way.

    Raises:
        Unproven: the proof does not prove the text.
    """

    text: str
    about: str
    """A description in one line."""
    proof: Proof

    def __post_init__(self) -> None:
        if why := why_unproven(self.text, self.proof):
            raise Unproven(why)


@dataclass(frozen=True)
class Candidate:
    """A program that may show the failure; empty where there is none."""

    text: str
    about: str
    """A description in one line."""
    why: str
    """Why it is not a repro, as a clause."""


def classify_program(
    text: str, about: str, proof: Proof | None, otherwise: str = ""
) -> Repro | Candidate:
    """Return a Repro where ``proof`` proves ``text``, and a Candidate otherwise.

    ``otherwise`` is the reason of the candidate, where one is known.
    """
    if proof is None or (why := why_unproven(text, proof)):
        return Candidate(
            text, about, otherwise or (why if proof else "no fresh process has run it")
        )
    return Repro(text, about, proof)


def why_unproven(text: str, proof: Proof | None) -> str:
    """Return why ``proof`` does not prove ``text``, as a clause; empty where it does."""
    if not text.strip():
        return "there is no program"
    if proof is None:
        return "no fresh process has run it"
    if proof.digest != program_digest(text):
        return "it is not the text that was run"
    if proof.needs:
        return f"it is not self-contained: {proof.needs}"
    if proof.answer == same_failure.PASSES:
        return "run alone in a fresh process it passes"
    if proof.answer != same_failure.SAME:
        return (
            "run alone in a fresh process it does not fail in the same way:"
            f" {proof.instead or proof.title}"
        )
    kind = proof.title.partition(":")[0]
    if proof.hits < 1 or (kind_named(kind).is_silent and not proof.asserts):
        if kind_named(kind).fail_on:
            return _why_unobserved(kind, proof)
        if kind_named(kind).is_silent:
            return (
                f"none of {proof.runs} plain runs failed by itself, so only a comparison by"
                " reprokit shows it"
            )
        return (
            f"none of {proof.runs} plain runs failed in the same way:"
            f" {proof.instead or 'they passed'}"
        )
    if kind_named(kind).is_asserted and proof.eager != "passes":
        return (
            "its assertion does not hold without torch.compile:"
            f" {proof.eager or 'it was not run so'}"
        )
    return ""


def _why_unobserved(kind: str, proof: Proof) -> str:
    """Return why plain runs say nothing about a failure after which PyTorch goes on."""
    how = proof.instead or describe_exit(0)
    return (
        f"PyTorch goes on after a {kind}, and the program has no check for it: reprokit observed"
        f" it in a run of its own, but not in {plural(proof.runs, 'plain run')}, which ended with"
        f" {how}"
    )


def describe_proof(proof: Proof) -> str:
    """Return a short description of the runs of a proof."""
    where = " on a simulated GPU" if proof.is_simulated else ""
    eager = ", eager passes" if proof.eager == "passes" else f", eager: {proof.eager}"
    low, high = rates.interval_of_rate(proof.hits, proof.runs)
    rate = f" (95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
    return (
        f"the same failure in {proof.hits} of {proof.runs} fresh runs{where}"
        + rate * (proof.hits < proof.runs)
        + eager * bool(proof.eager)
    )
