"""The result of a capture: its records, and the paths of its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.experiments.ablation import AnyAblation
from reprokit.core.experiments.remedies import advice
from reprokit.core.growth import costs
from reprokit.core.judge import silent_failures
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared.contract.events import Torch
from reprokit.core.shared.contract.serialize import SCHEMA, to_json
from reprokit.core.triage import known_failures, traits
from reprokit.core.triage.decision import UNDECIDED, Decision
from reprokit.core.triage.known_failures import KnownFailure, KnownMatch
from reprokit.core.triage.likeness import Traits
from reprokit.host.catalogue import catalogue_files
from reprokit.host.environment.machine_facts import MachineFacts
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proven import Repro
from reprokit.host.pack import reopen
from reprokit.host.run.observation_reader import Journals
from reprokit.host.run.run_outcome import RunOutcome


@dataclass
class CaptureResult:
    """The records of a capture, and the paths of its files."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    run_path: Path
    pack_path: Path | None = None
    issue_path: Path | None = None
    repro_path: Path | None = None
    repro: Repro | None = None
    """The program of ``repro_path`` with its proof."""
    candidate_path: Path | None = None
    unproven: str = ""
    """Why there is no proven repro; empty where there is one, and where nothing failed."""
    report_path: Path | None = None
    decision: Decision = UNDECIDED
    """What to do with the failure."""
    users_line: str = ""
    """The line of the user's code that the failure is about, with its text; empty if unknown."""
    compiling: str = ""
    """The function that Dynamo traced last, as ``NAME in FILE``; empty if it traced none."""
    weights: str = ""
    model: str = ""
    """Class and inputs of an ``hf:`` target: reprokit chose them."""
    missing: list[Missing] = field(default_factory=list)
    trimmed: list[str] = field(default_factory=list)
    hidden: Mapping[str, object] = field(default_factory=dict)
    """The counts of placeholders in the files of the pack."""
    minimized: MinimizeResult | None = None
    ablation: AnyAblation | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the compile by phase, with those of its child processes."""
    total_s: float = 0.0
    """Seconds from the start of the capture to its pack."""
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of ``torch`` and ``triton`` of the target, where they are known."""
    catalogue: Sequence[KnownFailure] | None = None
    """The entries of known failures; None for those of reprokit."""

    @property
    def advice(self) -> str:
        """What to change where the cause is the program's or a limit; nobody tried it."""
        return advice.advise(self.verdict, self.seen)

    @property
    def exit_code(self) -> int:
        """The exit code of ``reprokit capture``."""
        if self.verdict.cause == "interrupted":
            return 130
        is_tolerated = silent_failures.is_tolerated(self.verdict, self.seen)
        return 0 if is_tolerated else kind_named(self.verdict.kind).exit_code

    def known(self) -> list[KnownMatch]:
        """Return the known failures that the failure matches, the best first."""
        if not kind_named(self.verdict.kind).is_failure:
            return []
        entries = catalogue_files.own_catalogue() if self.catalogue is None else self.catalogue
        return known_failures.find_known_failures(self.signature, self._traits(), entries)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints; later versions only add keys."""
        verdict, signature = self.verdict, self.signature
        return {
            "schema": SCHEMA,
            "verdict": {k: v for k, v in to_json(verdict).items() if k != "evidence"},
            "signature": {
                "id": signature.id,
                "title": signature.title,
                "algorithm": signature.algorithm,
            },
            "run_dir": str(self.run_path),
            "pack": str(self.pack_path) if self.pack_path else None,
            "issue": str(self.issue_path) if self.issue_path else None,
            "repro": str(self.repro_path) if self.repro_path else None,
            "candidate": str(self.candidate_path) if self.candidate_path else None,
            "unproven": self.unproven or None,
            "report": str(self.report_path) if self.report_path else None,
            "minimized": reopen.minimize_document(self.minimized) if self.minimized else None,
            "comparison": to_json(self.seen.comparison),
            "call_growth": to_json(self.seen.call_growth),
            "memory": to_json(self.seen.memory),
            "speed": to_json(self.seen.speed),
            "ablation": self.ablation.to_json() if self.ablation else None,
            "traits": to_json(self._traits()),
            "known": [match.to_json() for match in self.known()],
            "decision": to_json(self.decision),
            "advice": self.advice or None,
            "compile": {"cpu_s": round(sum(self.phases.values()), 3), "phases": self.phases},
            "versions": self.versions,
            "redacted": self.hidden,
            "missing": [to_json(m) for m in self.missing],
            "seconds": self.seen.seconds,
            "total_s": round(self.total_s, 2),
            "peak_rss_bytes": self.seen.peak_rss_bytes,
        }

    def _traits(self) -> Traits:
        first = self.ablation.first_failing if self.ablation else None
        part = first.part if first else ""
        return traits.traits_of_failure(self.verdict, self.seen, self.signature, part)


def phases_of(journals: Journals, outcome: RunOutcome) -> dict[str, float]:
    """Return the CPU seconds of the compile by phase, the largest first."""
    by_phase, _ = costs.costs_of_journals(journals.by_pid, outcome.cpu_s, outcome.cpu_by_pid)
    return {
        name: round(cost, 4) for name, cost in sorted(by_phase.items(), key=lambda row: -row[1])
    }


def versions_of(journals: Journals, machine: MachineFacts) -> dict[str, str]:
    """Return the versions of torch and triton of the target, where they are known."""
    packages = machine.facts.get("packages")
    known = {
        "torch": journals.last_event_of_type(Torch).version,
        "triton": (packages or {}).get("triton"),
    }
    return {name: str(version) for name, version in known.items() if version}
