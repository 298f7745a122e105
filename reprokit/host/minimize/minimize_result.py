"""What a reduction came to, and what makes one repro better than another."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reprokit.core.judge import same_failure
from reprokit.host.minimize import proof, proven
from reprokit.host.minimize.oracle import lines_of

PRIVATE_LINES = 20
"""What a name that only the compiler writes costs, in lines, when two repros are compared."""


@dataclass
class MinimizeResult:
    """What a reduction came to."""

    text: str = ""
    level: str = ""
    """``source``, ``dynamo`` or ``aten``: what the repro was cut from."""
    began_lines: int = 0
    lines: int = 0
    began_nodes: int = 0
    probes: int = 0
    asked: int = 0
    cpu_s: float = 0.0
    """Processor seconds of the reduction: server, probes and this process, without the proof."""
    seconds: float = 0.0
    """Of the whole minimization, with the proof."""
    budget_s: float = 0.0
    """What all but the proof may take."""
    proof_s: float = 0.0
    rate: float = 1.0
    is_complete: bool = False
    """Nothing more can be left out; False when the budget ended or somebody did."""
    notes: list[str] = field(default_factory=list)
    proof: proof.Proof | None = None
    unproved: str = ""
    """Why the proof has no hits, where the reduction knows more than the proof tells."""

    @property
    def is_proved(self) -> bool:
        """Fresh processes without reprokit failed in the same way."""
        return not proven.why_unproven(self.text, self.proof)

    @property
    def has_shown(self) -> bool:
        """A watched fresh process failed in the same way, whether or not plain ones did."""
        return self.proof is not None and self.proof.answer == same_failure.SAME

    @property
    def is_interrupted(self) -> bool:
        """Somebody ended the reduction."""
        return any(note.startswith("interrupted") for note in self.notes)

    @property
    def why(self) -> str:
        """Why the text is no repro; empty where it is one."""
        program = self.program()
        return program.why if isinstance(program, proven.Candidate) else ""

    def program(self) -> proven.Repro | proven.Candidate:
        """The program as what its proof makes it."""
        return proven.classify_program(self.text, self.say(), self.proof, self.unproved)

    def spent(self) -> str:
        """What it took, beside the budget."""
        return (
            f"budget {self.budget_s:g} s: reduction {self.seconds - self.proof_s:.0f} s, proof"
            f" {self.proof_s:.0f} s"
        )

    def say(self) -> str:
        """One line on what the repro is and what proves it."""
        cut = f"{self.began_nodes} nodes" if self.began_nodes and self.level != "source" else ""
        whence = {
            "source": "the target's source",
            "dynamo": "the graph that Dynamo saw",
            "aten": "the graph that Inductor got",
            "kernel": "the kernel that Inductor generated",
        }
        rows = [
            f"{self.lines} lines, cut out of {whence.get(self.level, 'the target')}"
            + (f" ({cut})" if cut else "")
        ]
        rows.append(
            proven.why_not_proven(self.proof) if self.is_proved and self.proof else "not proved"
        )
        if not self.is_complete:
            rows.append("not yet minimal")
        return "; ".join(rows)


def repro_cost(text: str) -> tuple[int, int, int]:
    """What makes a repro worse: lines, names that only a compiler writes; characters; large
    numbers.
    """
    private = (
        PRIVATE_LINES
        if "torch._C." in text or "higher_order" in text or "torch.ops.aten" in text
        else 0
    )
    numbers = sum(int(n) for n in re.findall(r"\b\d{1,9}\b", text))
    return lines_of(text) + private, len(text), numbers
