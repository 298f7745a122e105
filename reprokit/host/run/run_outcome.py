"""How one execution of a target ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprokit.core.records.observation import Missing
from reprokit.core.records.stalls import Stall
from reprokit.host.watch.hang_evidence import HangStacks


@dataclass(frozen=True)
class RunOutcome:
    """How the run ended, beside what it left in its directory."""

    exit_status: int | None
    is_timed_out: bool
    """It was still running when its deadline came, or when it was ended for a stall."""
    is_stalled: bool
    is_interrupted: bool
    quiet_s: float
    last_progress: str
    seconds: float
    cpu_s: float
    cpu_by_pid: Mapping[str, float]
    """Of the processes that keep a journal, as far as they were seen; the root's is exact."""
    peak_rss_bytes: int
    started: float
    ended: float
    main_pid: int
    stacks: HangStacks
    oom_evidence: str
    watch_cpu_s: float
    """Processor seconds of reprokit itself and its tools while the target ran."""
    last_output: float
    """When the target last wrote to stdout or stderr; 0 when it never did."""
    missing: tuple[Missing, ...]
    stalls: tuple[Stall, ...] = ()
    """Times without progress that did not end the run."""
    still_from: int = 0
    """The first round of stacks since the last progress."""
