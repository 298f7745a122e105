"""Watch a process tree for days with little CPU, and write a pack for each new lock-up."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from reprokit.core.records.process_state import WaitingRequest
from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import access, open_requests
from reprokit.host.service.answering_ports import AnsweringPorts
from reprokit.host.service.examination import Examination, Finding
from reprokit.host.service.look import Position, TreeReader
from reprokit.host.service.stillness import Stillness, enough_s
from reprokit.host.system import deletion, host_log, process_tree

LOOK_SHARE, TICK_SHARE = 0.003, 0.001
"""Shares of one CPU for reading stacks, and for reading times and sockets."""
MIN_TICK_S = 0.5
MIN_LOOKS, MAX_LOOKS = 4, 8
"""Looks in ``--stall`` seconds. With a short limit, they cost more than their share of a CPU."""
UNREADABLE_LOOKS = 3
"""A program may start with a shell, so the first looks may find no Python."""
EVENTS_FILE = "events.jsonl"
_REQUESTS = Position(0, 0, "", ())
"""Stands for a process tree that is idle while requests wait."""


@dataclass(frozen=True)
class WatchOptions:
    """What the user asks of a watch."""

    stall_s: float = 120.0
    max_packs: int = 5
    """Packs of lock-ups that are kept; later lock-ups are only reported."""
    ports: tuple[int, ...] = ()
    """TCP ports on which every request gets an answer; others are learned."""


@dataclass(frozen=True)
class LockUp:
    """A lock-up that was reported."""

    time: float
    """Seconds since the epoch."""
    still_s: float
    """For this long nothing had moved, at least."""
    phase: str
    cause: str
    reason: str
    signature: str
    title: str
    is_new: bool
    """No lock-up with this signature and cause was reported before."""
    pack: str
    """The path of its pack; empty if it is not new, or if there are enough packs."""


class ServiceWatch:
    """Watches one process tree. Call :meth:`step` again and again, ``tick_s`` apart."""

    def __init__(
        self, root_pid: int, output: Path, options: WatchOptions, say: Callable[[str], None]
    ) -> None:
        self.lock_ups: list[LockUp] = []
        self.tick_s = MIN_TICK_S
        self._root, self._output, self._options, self._say = root_pid, output, options, say
        self._looks = output / f"looks-{os.getpid()}"  # two watches may have the same output
        self._reader = TreeReader(root_pid, self._looks)
        gap_s = max(options.stall_s / MAX_LOOKS, MIN_TICK_S)
        self._still = Stillness(options.stall_s, gap_s)
        self._ports = AnsweringPorts(options.ports)
        self._closed = open_requests.ClosedConnections()
        self._is_resting = False
        self._next_look = self._next_sockets = 0.0
        self._has_old_requests = self._are_requests_reported = False
        self._examination: Examination | None = None
        self._examined_s, self._examined = 0.0, _REQUESTS
        self._process = psutil.Process(root_pid)
        self._known: set[tuple[str, str]] = set()
        self._count = self._unreadable = 0

    def step(self) -> bool:
        """Read what is due. Return False if the root process has ended."""
        began_cpu, now = sum(process_tree.own_cpu_seconds()), time.monotonic()
        if not self._process.is_running() or process_tree.has_ended(self._root):
            return False
        self._check_sockets(now)
        used = sum(process_tree.own_cpu_seconds()) - began_cpu
        self.tick_s = max(MIN_TICK_S, min(used / TICK_SHARE, self._options.stall_s / 10))
        if now >= self._next_look:
            self._look(now)
        self._follow_examination()
        return True

    def close(self) -> None:
        """Stop an examination, and delete the files of the looks. The process tree goes on."""
        if self._examination is not None:
            self._examination.stop()
            self._examination = None
        self._reader.close()
        self._closed.close()
        deletion.delete_path(self._looks, inside=self._output)

    def _look(self, now: float) -> None:
        used = sum(process_tree.own_cpu_seconds())
        seen = self._reader.look()
        used = sum(process_tree.own_cpu_seconds()) - used
        stall_s = self._options.stall_s
        self._still.gap_s = max(
            stall_s / MAX_LOOKS, min(stall_s / MIN_LOOKS, used / LOOK_SHARE), MIN_TICK_S
        )
        was_reported, still_s = self._still.is_reported, self._still.still_s
        self._still.add_look(seen, now)
        if was_reported and not self._still.is_reported:
            self._note("advances", f"process {self._root} advances again", still_s=still_s)
        self._is_resting = seen.is_readable and seen.position is None
        self._unreadable = 0 if seen.is_readable else self._unreadable + 1
        if self._unreadable == UNREADABLE_LOOKS:
            self._say_why_unreadable()
        left_s = self._still.left_s
        self._next_look = now + (left_s if 0 < left_s < self._still.gap_s else self._still.gap_s)
        if self._still.is_suspect and self._still.position is not None:
            self._examine(self._still.still_s, self._still.position)

    def _say_why_unreadable(self) -> None:
        why = "no process of it runs Python"
        with host_log.suppress(BadInput):
            why = access.check_access(self._root) or "py-spy could not read them"
        self._note("unreadable", f"no stack of process {self._root} could be read: {why}")

    def _check_sockets(self, now: float) -> None:
        """Note requests without an answer for ``--stall`` while the process tree rests."""
        if now < self._next_sockets:
            return
        used = sum(process_tree.own_cpu_seconds())
        connections = open_requests.list_connections()
        self._ports.learn(connections, self._closed.read(), now)
        limit_s = enough_s(self._options.stall_s, 2 * self.tick_s)
        is_old = any(
            c.received_s >= limit_s and (c.unread_bytes or not c.is_answered) for c in connections
        )
        found: tuple[WaitingRequest, ...] = ()
        if is_old and self._is_resting:
            family = [process.pid for process in process_tree.family_of(self._root)]
            found = open_requests.find_waiting_requests(family, self._ports.ports, connections)
        old = [request for request in found if request.seconds >= limit_s]
        if not old and self._is_resting:
            if self._are_requests_reported:
                self._note("advances", f"no request to process {self._root} waits any more")
            self._has_old_requests = self._are_requests_reported = False
        elif old and not self._has_old_requests:
            self._has_old_requests = self._examine(old[0].seconds, _REQUESTS)
        used = sum(process_tree.own_cpu_seconds()) - used
        self._next_sockets = now + used / TICK_SHARE

    def _examine(self, still_s: float, position: Position) -> bool:
        """Start an examination. Return False if there is one already, or if it cannot start."""
        if self._examination is not None:
            return False
        self._count += 1
        self._create_output()
        while (output := self._output / f"lock-up-{self._count:03d}").exists():
            self._count += 1
        self._examined_s, self._examined = still_s, position
        try:
            self._examination = Examination(
                self._root, still_s, self._options.stall_s, self._ports.ports, output
            )
        except OSError as problem:  # the disk is full, or the folder cannot be created
            self._report_unexamined(problem.strerror or str(problem))
        return self._examination is not None

    def _follow_examination(self) -> None:
        """Report the lock-up that an examination found."""
        examination = self._examination
        if examination is None or not examination.has_ended:
            return
        self._examination = None
        finding = examination.read_finding()
        if isinstance(finding, str):
            self._report_unexamined(finding)
            return
        if not finding.is_hang:
            self._still.clear()
            deletion.delete_path(examination.output, inside=self._output)
            return
        if self._examined == _REQUESTS:
            self._are_requests_reported = True
        elif self._examined == self._still.position:
            self._still.is_reported = True
        self._report(finding, examination.output)

    def _report_unexamined(self, why: str) -> None:
        """Report a process that may have locked up, and try again later."""
        self._still.clear()
        phase = self._examined.phase
        inside = f" in phase {phase}" if phase else ", while requests wait"
        self._note(
            "suspect",
            f"process {self._root} has not moved for {self._examined_s:.0f} s{inside}, and could"
            f" not be examined: {why}",
            still_s=round(self._examined_s, 1),
        )

    def _report(self, finding: Finding, output: Path) -> None:
        is_new = finding.identity not in self._known
        self._known.add(finding.identity)
        packs = sum(bool(lock_up.pack) for lock_up in self.lock_ups)
        is_kept = is_new and packs < self._options.max_packs
        if not is_kept:
            deletion.delete_path(output, inside=self._output)
        lock_up = LockUp(
            time.time(),
            round(self._examined_s, 1),
            finding.phase,
            finding.cause,
            finding.reason,
            finding.signature,
            finding.title,
            is_new,
            finding.pack if is_kept else "",
        )
        self.lock_ups.append(lock_up)
        where = f"; pack {lock_up.pack}" if lock_up.pack else "; no pack: it is known"
        if is_new and not is_kept:
            where = f"; no pack: there are {packs}, as many as --packs allows"
        self._note("lock-up", f"lock-up: {finding.reason.rstrip('.')}{where}", **asdict(lock_up))

    def _create_output(self) -> None:
        """Create the folder of the output, which somebody may have deleted."""
        with host_log.suppress(OSError):
            self._output.mkdir(parents=True, exist_ok=True)

    def _note(self, event: str, text: str, **fields: object) -> None:
        """Print an event, and append it to the file of the events."""
        self._say(text)
        self._create_output()
        row = {"event": event, "text": text, "pid": self._root, "t": time.time(), **fields}
        with host_log.suppress(OSError), (self._output / EVENTS_FILE).open("a") as file:
            file.write(json.dumps(row) + "\n")


def describe(root_pid: int, options: WatchOptions, output: Path) -> str:
    """Return one line that says what a watch does."""
    return (
        f"watching {process_tree.describe_family(root_pid)} from outside; reprokit does not stop,"
        f" signal or end anything; it reports a lock-up of {options.stall_s:g} s here and in"
        f" {output / EVENTS_FILE}"
    )
