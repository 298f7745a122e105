"""What is measured of a running probe: the time that it gets, and its stacks at a deadline."""

from __future__ import annotations

import time
from pathlib import Path

from reprokit.core.records.process_state import Evidence
from reprokit.host.system import process_tree
from reprokit.host.watch.hang_evidence import HangStacks
from reprokit.host.watch.stacks import StackDumper

DUMP_ROUNDS = 3
ROUND_GAP_S = 0.15


class ServedClock:
    """Counts the seconds in which a process and its descendants wait for a CPU, and the others."""

    EVERY_S = 0.1

    def __init__(self, pid: int) -> None:
        self._pid, self.served_s, self.waited_s = pid, 0.0, 0.0
        self._at, self._before = time.monotonic(), (0.0, 0.0)

    def update(self) -> None:
        """Add the time since the last call, at most every ``EVERY_S`` seconds."""
        passed = time.monotonic() - self._at
        if passed < self.EVERY_S:
            return
        self._at += passed
        ran = waited = 0.0
        for process in process_tree.family_of(self._pid):
            own_ran, own_waited = process_tree.cpu_seconds(process.pid)
            ran, waited = ran + own_ran, waited + own_waited
        now_ran, now_waited = max(ran - self._before[0], 0.0), max(waited - self._before[1], 0.0)
        self._before = ran, waited
        served_s = min(passed, 2.0) * process_tree.cpu_share(now_ran, now_waited, passed)
        self.served_s, self.waited_s = self.served_s + served_s, self.waited_s + passed - served_s


def dump_stacks(folder: Path, pid: int) -> HangStacks:
    """Return the stacks of a process in several rounds."""
    dumper = StackDumper(folder)
    try:
        for _ in range(DUMP_ROUNDS):
            dumper.dump_round([pid])
            dumper.dump_by_signal([pid], dumper.number)
            time.sleep(ROUND_GAP_S)
        return HangStacks(tuple(dumper.dumps), Evidence(), dumper.describe_problems())
    finally:
        dumper.close()
