"""What a reduction came to, and what makes one repro better than another."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..core import oracle
from . import proof
from .oracle import lines_of

PRIVATE_LINES = 20
"""What a name that only the compiler writes costs, in lines, when two repros are compared."""


@dataclass
class Minimized:
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

    @property
    def is_proved(self) -> bool:
        """A fresh process showed the same failure."""
        return self.proof is not None and self.proof.answer == oracle.SAME

    def spent(self) -> str:
        """What it took, beside the budget."""
        return f"budget {self.budget_s:g} s: reduction {self.seconds - self.proof_s:.0f} s, proof {self.proof_s:.0f} s"

    def say(self) -> str:
        """One line on what the repro is and what proves it."""
        cut = f"{self.began_nodes} nodes" if self.began_nodes and self.level != "source" else ""
        whence = {
            "source": "the target's source",
            "dynamo": "the graph that Dynamo saw",
            "aten": "the graph that Inductor got",
            "kernel": "the kernel that Inductor generated",
        }
        rows = [f"{self.lines} lines, cut out of {whence.get(self.level, 'the target')}" + (f" ({cut})" if cut else "")]
        if self.is_proved and self.proof:
            eager = ", eager passes" if self.proof.eager == "passes" else f", eager: {self.proof.eager}"
            told = f"the same failure in {self.proof.hits} of {self.proof.runs} fresh runs"
            rows.append(told + eager * bool(self.proof.eager))
        else:
            rows.append("not proved in a fresh process")
        if not self.is_complete:
            rows.append("not yet minimal")
        return "; ".join(rows)


def cost(text: str) -> tuple[int, int, int]:
    """What makes a repro worse: lines, names that only a compiler writes; characters; large numbers."""
    private = PRIVATE_LINES if "torch._C." in text or "higher_order" in text or "torch.ops.aten" in text else 0
    numbers = sum(int(n) for n in re.findall(r"\b\d{1,9}\b", text))
    return lines_of(text) + private, len(text), numbers
