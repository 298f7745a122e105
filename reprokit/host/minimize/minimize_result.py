"""The result of a reduction, and the cost by which two repros are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reprokit.core.experiments.failure_conditions import Conditions
from reprokit.core.judge import same_failure
from reprokit.core.judge.stacks.location import plural
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.minimize.proofs import proof, proven

PRIVATE_LINES = 20
"""The cost, in lines, of a repro that uses a private name of the compiler."""


@dataclass
class MinimizeResult:
    """The result of a reduction."""

    text: str = ""
    level: str = ""
    """The starting point of the repro: ``source``, ``dynamo``, ``aten`` or ``kernel``."""
    began_lines: int = 0
    lines: int = 0
    began_nodes: int = 0
    probes: int = 0
    asked: int = 0
    cpu_s: float = 0.0
    """CPU seconds of the reduction: server, probes and this process, without the proof."""
    seconds: float = 0.0
    """Wall-clock time of the whole minimization, with the proof."""
    budget_s: float = 0.0
    """The limit of the wall-clock time without the proof."""
    first_s: float | None = None
    """Seconds until the first program showed the failure; None if none did."""
    proof_s: float = 0.0
    rate: float = 1.0
    is_complete: bool = False
    """Nothing more can be left out; False when the budget ended or the user interrupted it."""
    notes: list[str] = field(default_factory=list)
    depends_on: list[str] = field(default_factory=list)
    """Sentences on the values of inputs, and the random values, that the failure depends on."""
    conditions: Conditions | None = None
    """What the failure needs of the machine and the process; None if nobody asked."""
    proof: proof.Proof | None = None
    unproved: str = ""
    """Why the proof has no hits, where the reduction knows a reason that the proof does not."""

    @property
    def is_proved(self) -> bool:
        """True when fresh processes without reprokit failed in the same way."""
        return not proven.why_unproven(self.text, self.proof)

    @property
    def has_shown(self) -> bool:
        """True when a watched fresh process failed in the same way, even if no plain one did."""
        return self.proof is not None and self.proof.answer == same_failure.SAME

    @property
    def is_interrupted(self) -> bool:
        """True when the user interrupted the reduction."""
        return any(note.startswith("interrupted") for note in self.notes)

    @property
    def why(self) -> str:
        """Why the text is not a repro; empty where it is one."""
        program = self.program()
        return program.why if isinstance(program, proven.Candidate) else ""

    def program(self) -> proven.Repro | proven.Candidate:
        """Return the program as a repro where it is proved, and as a candidate otherwise."""
        return proven.classify_program(self.text, self.describe(), self.proof, self.unproved)

    def describe_time(self) -> str:
        """Return one line with the budget and the time that the reduction and the proof took."""
        return (
            f"budget {self.budget_s:g} s: reduction {self.seconds - self.proof_s:.0f} s, proof"
            f" {self.proof_s:.0f} s"
        )

    def describe(self) -> str:
        """Return one line on what the repro was cut from and what proves it."""
        nodes = plural(self.began_nodes, "node") if self.began_nodes else ""
        nodes = nodes if self.level != "source" else ""
        origins = {
            "source": "the target's source",
            "dynamo": "the graph that Dynamo saw",
            "export": "the exported graph",
            "aten": "the graph that Inductor got",
            "kernel": "the kernel that Inductor generated",
        }
        rows = [
            f"{self.lines} lines, cut out of {origins.get(self.level, 'the target')}"
            + (f" ({nodes})" if nodes else "")
        ]
        rows.append(
            proven.describe_proof(self.proof) if self.is_proved and self.proof else "not proved"
        )
        if not self.is_complete:
            rows.append("not yet minimal")
        return "; ".join(rows)


def repro_cost(text: str) -> tuple[int, int, int]:
    """Return the cost of a repro: lines with a penalty for private names, characters, numbers."""
    private = (
        PRIVATE_LINES
        if "torch._C." in text or "higher_order" in text or "torch.ops.aten" in text
        else 0
    )
    numbers = sum(int(n) for n in re.findall(r"\b\d{1,9}\b", text))
    return count_code_lines(text) + private, len(text), numbers
