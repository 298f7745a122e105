"""Run a hunt: search, and capture what was found, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from reprokit.host.hunt import capture_findings, source_places, target_search
from reprokit.host.hunt.families import HuntDocument, describe_hunt
from reprokit.host.hunt.outcomes import HuntFolder, HuntPlan, open_hunt
from reprokit.host.probe.client import ProbeServer
from reprokit.host.system import deletion, interrupts

SERVER = "server"
"""The folder of the processes that run targets; it is empty after a search."""
IMPORTS = ("import torch.testing._internal.common_methods_invocations",)
"""What the server imports, so that no child of it has to."""
ALL = 1 << 40
TURN_S = 300.0
"""Seconds of a search before findings are captured."""
CAPTURES = 4
"""Findings that are captured before the search goes on."""
MANY_PENDING = 12
"""With as many findings to capture, no further targets are searched."""
CAPTURE_S = 150.0
"""Seconds that a capture usually takes; no capture begins with less time left."""
Say = Callable[[str], None]


def run_hunt(
    path: Path,
    plan: HuntPlan,
    limit_s: float,
    most: int | None,
    target_limit_s: float,
    say: Say,
    show: Say,
) -> HuntDocument:
    """Hunt for ``limit_s`` seconds, or until ``most`` targets have run and their findings are
    captured. Return what the folder has then. A target may take ``target_limit_s``.

    Raises:
        BadInput: the folder or a source cannot be used.
        NightFailed: the ledger cannot be written.
        ServerLost: the probe server cannot start.
    """
    end = time.monotonic() + limit_s
    last = ALL if most is None else most
    is_interrupted = False
    source_places.check_sources(plan.sources, plan.python)
    with open_hunt(path, plan, target_limit_s) as hunt:
        if hunt.outcomes:
            counts = target_search.describe_counts(hunt)
            say(f"resuming after target {hunt.next_number - 1}: {counts}")
        try:
            while time.monotonic() < end and not is_interrupted:
                if len(capture_findings.pending_findings(hunt)) < MANY_PENDING:
                    _search(hunt, min(end, time.monotonic() + TURN_S), last, show)
                room = int((end - time.monotonic()) / CAPTURE_S)
                chosen = capture_findings.pending_findings(hunt)[: max(min(room, CAPTURES), 0)]
                if chosen:
                    is_interrupted = capture_findings.capture_findings(hunt, chosen, say, show)
                elif hunt.next_number >= last:
                    break
        except KeyboardInterrupt:
            is_interrupted = True
        return describe_hunt(hunt, is_interrupted)


def _search(hunt: HuntFolder, end: float, last: int, show: Say) -> None:
    """Run targets until the monotonic time ``end``, or the target ``last``."""
    path = hunt.path / SERVER
    with (
        ProbeServer(path, hunt.plan.python, "build", imports=IMPORTS) as server,
        interrupts.allowed(),
    ):
        target_search.search_targets(hunt, server, end, last, show)
    deletion.delete_path(path, inside=hunt.path)  # its copy of the compiler cache
