"""Claims: the statements of public texts, with their subjects, their evidence and their checks.

A claim is about what its evidence is about. So no claim about the captured run can be made from
runs of a smaller program: the types do not fit, and mypy reports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar


class Subject:
    """What a claim is about."""

    name: ClassVar[str]


class UsersRun(Subject):
    """The run of the user's own program."""

    name = "the captured run"


class PackedProgram(Subject):
    """The program of the pack, which is a part of the user's program or the whole of it."""

    name = "the program of the pack"


class KnownIssue(Subject):
    """A public issue, as the catalogue of known failures describes it."""

    name = "a known issue"


class ThisMachine(Subject):
    """The machine and the environment of the captured run."""

    name = "the machine"


S_co = TypeVar("S_co", bound=Subject, covariant=True)

How = Literal[
    "fails", "passes", "failure", "output", "stack", "count", "cost", "settings", "version",
    "issue", "own code", "digest", "values", "lines", "imports", "logs", "sanitizers",
    "inputs", "operator", "candidate", "source",
]  # fmt: skip
HOW: Final[Mapping[str, str]] = {
    "fails": "run the program with these changes: it fails in the same way",
    "passes": "run the program with these changes: it does not fail",
    "failure": "run the user's program: it fails in this way",
    "output": "these words are in the output of the program that fails",
    "stack": "these functions are on the stack of the program at its failure",
    "count": "torch counts as many",
    "cost": "a plain run of the program costs about as much",
    "settings": "a fresh process of the same torch has different values",
    "version": "the interpreter imports this version",
    "issue": "the issue is about this",
    "own code": "the place is in a file of the user, and in no installed package",
    "digest": "the digest is that of the text",
    "values": "eager and compiled code give these values",
    "lines": "the file has this many lines",
    "imports": "the program imports these libraries, and no others but torch",
    "logs": "the logs of the captured run in the pack show it",
    "inputs": "with other values of this input, the repro passes",
    "operator": "a graph of torch's trace has this operator",
    "candidate": "the program of the pack is made of the lines of the user's",
    "source": "the line of the user's file has this text, in this function",
    "sanitizers": "g++ -g1 -fsanitize=address,undefined builds the kernels: the report says it",
}
"""How a claim is checked without the code that made it, for people."""


@dataclass(frozen=True)
class Check:
    """One way to check a claim, or a part of it, without the code that made it."""

    how: How
    what: Mapping[str, Any] = field(default_factory=dict)


class ClaimEvidence(Protocol[S_co]):
    """What a claim is made from."""

    @property
    def about(self) -> type[S_co]:
        """What the evidence is about."""

    @property
    def packed_as(self) -> str:
        """The file of the pack that has it."""


@dataclass(frozen=True)
class Claim(Generic[S_co]):
    """One statement."""

    text: str
    about: type[S_co]
    evidence: str
    """The file of the pack that has the evidence."""
    checks: tuple[Check, ...] = ()
    """All of them must hold; empty if nothing outside of reprokit can check the statement."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``claims.json``."""
        return {
            "text": self.text,
            "about": self.about.name,
            "evidence": self.evidence,
            "checks": [
                {"how": check.how, "words": HOW[check.how], **check.what} for check in self.checks
            ],
        }


def claim(text: str, evidence: ClaimEvidence[S_co], *checks: Check) -> Claim[S_co]:
    """Return a statement about what ``evidence`` is about."""
    return Claim(text, evidence.about, evidence.packed_as, checks)
