"""The record that a program needs to be called a repro, and what every other program is: a
candidate.

``repro.py`` of a pack and the heading "Repro" of an issue take a :class:`Repro` and nothing else,
and a program becomes one only with the proof that this very text was run alone and failed in the
same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprokit.core.judge import same_failure
from reprokit.core.records.kinds import kind_named
from reprokit.core.shared.contract import run_names
from reprokit.host.minimize.proof import Proof, program_digest

REPRO, CANDIDATE, PROOF = run_names.REPRO_FILE, run_names.CANDIDATE_FILE, run_names.PROOF_FILE
"""Files of a pack: the proved program, or another one, and what fresh processes said of the
first.
"""
VALUES = "the failure depends on the values of the inputs, which the program does not have"


class Unproven(ValueError):
    """The program is no repro; the message says why."""


@dataclass(frozen=True)
class Repro:
    """A program that was run as it is, without reprokit, and failed in the same way; raises
    Unproven for any other.
    """

    text: str
    about: str
    """What it is, in one line."""
    proof: Proof

    def __post_init__(self) -> None:
        if why := why_unproven(self.text, self.proof):
            raise Unproven(why)


@dataclass(frozen=True)
class Candidate:
    """A program that may show the failure; empty where there is none."""

    text: str
    about: str
    why: str
    """Why it is no repro, as a clause."""


def classify_program(
    text: str, about: str, proof: Proof | None, otherwise: str = ""
) -> Repro | Candidate:
    """The program as what its proof makes it; ``otherwise`` says why it has no proof, where that is
    known.
    """
    if proof is None or (why := why_unproven(text, proof)):
        return Candidate(
            text, about, otherwise or (why if proof else "no fresh process has run it")
        )
    return Repro(text, about, proof)


def why_unproven(text: str, proof: Proof | None) -> str:
    """Why ``proof`` does not prove ``text``, as a clause; empty where it does."""
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


def why_not_proven(proof: Proof) -> str:
    """What the runs of a proof came to, in a few words."""
    where = " on a simulated GPU" if proof.is_simulated else ""
    eager = ", eager passes" if proof.eager == "passes" else f", eager: {proof.eager}"
    return f"the same failure in {proof.hits} of {proof.runs} fresh runs{where}" + eager * bool(
        proof.eager
    )
