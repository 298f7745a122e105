"""What a capture leaves: the records, and where the files lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.ablation import Ablation
from ..core.records import SCHEMA, Missing, Observation, Signature, Verdict, to_json
from . import again
from .minimized import Minimized


@dataclass
class Captured:
    """What a capture leaves: the records, and where the files lie."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    run_path: Path
    pack_path: Path | None = None
    issue_path: Path | None = None
    repro_path: Path | None = None
    report_path: Path | None = None
    url: str = ""
    weights: str = ""
    model: str = ""
    """Class and inputs of an ``hf:`` target: reprokit chose them."""
    missing: list[Missing] = field(default_factory=list)
    trimmed: list[str] = field(default_factory=list)
    minimized: Minimized | None = None
    ablation: Ablation | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints; later versions only add keys."""
        verdict, signature = self.verdict, self.signature
        return {
            "schema": SCHEMA,
            "verdict": {k: v for k, v in to_json(verdict).items() if k != "evidence"},
            "signature": {"id": signature.id, "title": signature.title, "algorithm": signature.algorithm},
            "run_dir": str(self.run_path),
            "pack": str(self.pack_path) if self.pack_path else None,
            "issue": str(self.issue_path) if self.issue_path else None,
            "repro": str(self.repro_path) if self.repro_path else None,
            "report": str(self.report_path) if self.report_path else None,
            "minimized": again.about(self.minimized) if self.minimized else None,
            "comparison": to_json(self.seen.comparison),
            "ablation": self.ablation.to_json() if self.ablation else None,
            "missing": [to_json(m) for m in self.missing],
            "seconds": self.seen.seconds,
            "peak_rss_bytes": self.seen.peak_rss_bytes,
        }
