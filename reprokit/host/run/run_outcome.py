"""How one execution of a target ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprokit.core.records.observation import Missing
from reprokit.core.records.stalls import Stall
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.watch.hang_evidence import HangStacks


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended. The names of the fields are keys of ``run.json``."""

    exit_status: int | None
    is_timed_out: bool
    """It was ended at its deadline, or because of a stall."""
    is_stalled: bool
    is_interrupted: bool
    quiet_s: float
    """Seconds since the last sign of progress, with those before an observation."""
    last_progress: str
    seconds: float
    cpu_s: float
    cpu_by_pid: Mapping[str, float]
    """CPU seconds of the processes that write a journal, at their last sample; that of the root is
    exact.
    """
    peak_rss_bytes: int
    started: float
    ended: float
    main_pid: int
    stacks: HangStacks
    oom_evidence: str
    watch_cpu_s: float
    """CPU seconds of reprokit and its tools while the target ran."""
    last_output: float
    """When the target last wrote to stdout or stderr; 0 if it never did."""
    missing: tuple[Missing, ...]
    stalls: tuple[Stall, ...] = ()
    """Stalls that did not end the run."""
    still_from: int = 0
    """The first round of stacks since the last progress."""
    quiet_before_s: float = 0.0
    """The part of ``quiet_s`` before the observation, as the user or the process states it."""


def outcome_to_json(outcome: RunOutcome) -> dict[str, Any]:
    """Return the outcome as JSON values, by the names of its fields; the stacks have own files."""
    names = (f.name for f in dataclasses.fields(outcome) if f.name != "stacks")
    return {name: to_json(getattr(outcome, name)) for name in names}
