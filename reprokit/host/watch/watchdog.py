"""Decide from outside whether a run advances, and gather evidence if it does not.

Progress is a phase event, a traced line, a lowered node, a graph, a change in the stack of a
compiler, or a working descendant of the target. A stall is no progress for ``--stall`` seconds.
These seconds are scaled by the share of the requested CPU time that the target receives: if it
receives a sixth, one minute becomes six.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.judge.hangs import thread_facts, waiting
from reprokit.core.judge.stacks import location, phases, recent_dumps
from reprokit.core.judge.stacks.evidence import main_stacks
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.records.dumps import Dump
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, Evidence
from reprokit.core.records.stalls import INSIDE, OUTSIDE, Stall
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.host.watch.hang_evidence import DUMP_ROUNDS, EvidenceGatherer, HangStacks
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.sampler import Sampler

DUMP_EVERY_S = 10.0
MAX_TICK_S = 2.0
"""Seconds without progress that one check can add, even if the watchdog or the machine was
suspended for longer.
"""
SILENT_COMPILER_STALLS = 5
"""A working compiler without other progress postpones a stall by this many times ``--stall``."""
BRIEF_DUMP_ROUNDS, BRIEF_GAP_S = 2, 0.25
"""Rounds before a signal of the user is forwarded, which must not wait long."""
MAX_ALARM_S = 600.0
"""A reported stall is examined again after twice the time, but at least this often."""


@dataclass
class RunProgress:
    """The status of a run, which the terminal shows."""

    elapsed_s: float
    rss_bytes: int
    activity: str
    """What the program does, in words; empty before its first event."""
    position: str
    """The line or the node that the compiler is at in its present phase; empty if unknown."""
    quiet_s: float = 0.0
    """Seconds since the last progress."""
    limit_s: float = 0.0
    """The deadline, in seconds from the start; 0 for none."""


class Watchdog:
    """Watches one run. Call :meth:`check_progress` often, and :meth:`gather_final_evidence` at the
    end.
    """

    def __init__(
        self,
        run_path: Path,
        root_pid: int,
        limit_s: float,
        line_repeats: int,
        last_output: Callable[[], float],
        dump_every_s: float = 0.0,
        stall_s: float = 60.0,
    ) -> None:
        """``limit_s`` is the time without progress after which a run counts as hanging.

        ``last_output`` returns the time of the last output. The other parameters are in
        ``run_request.Request``.
        """
        self._run_path, self._root, self._limit = run_path, root_pid, limit_s
        self._last_output, self._last_output_at = last_output, 0.0
        self._dump_every_s, self._sampled = dump_every_s, 0.0
        self.watch = Sampler(run_path / run_names.SAMPLES_FILE, root_pid)
        self.follower = JournalFollower(run_path / run_names.JOURNAL_FOLDER, line_repeats)
        self._gatherer = EvidenceGatherer(run_path, root_pid, self.follower, self.watch)
        self._dumper = self._gatherer.dumper
        self._last_dumps: list[Dump] = []
        self._dumped_at = 0.0
        self._phase: str | None = None
        self._is_synchronising = False
        self._ticked = self._compared_at = self._progress_at = time.monotonic()
        self._silent_compiler_s = 0.0
        self.problems: set[str] = set()
        self.quiet_s = 0.0
        """Seconds without progress, without those in which the target waited for a CPU."""
        self.last_progress = ""
        self.stalls: list[Stall] = []
        """Stalls that did not end the run."""
        self._began, self._has_open_stall = time.monotonic(), False
        self._stall_s = self._alarm_s = self._alarm_every_s = stall_s
        self._still_from = 0
        self._shown, self._shown_main = "", MainProcess(root_pid)

    def check_progress(self) -> None:
        """Check once a second whether the run advances. An error of the watchdog does not end the
        run.
        """
        try:
            self._check()
        except Exception as problem:
            self.problems.add(f"the watchdog failed: {problem!r}")

    def _check(self) -> None:
        if not self.watch.sample_if_due():
            return
        now = time.monotonic()
        passed, self._ticked = min(now - self._ticked, MAX_TICK_S), now
        news, is_in_stacks = self.follower.read_news(), False
        main = self.follower.find_main_process(self._root)
        if (
            self._dump_every_s
            and self.follower.has_begun
            and now - self._sampled >= self._dump_every_s
        ):
            self._sampled = now
            self._dumper.dump_round([main.pid])
        if not news and now - self._compared_at >= self._dump_interval_s():
            self._compared_at = now
            news = self._progress_in_stacks(main)
            is_in_stacks = bool(news)
        if not news:
            news = self._progress_outside_compiler(main)
        received_share = self.watch.received_cpu_share()
        if news:
            self._record_progress(news[-1], is_in_stacks)
        elif (
            self.watch.working_children(main.pid)
            and self._silent_compiler_s < SILENT_COMPILER_STALLS * self._limit
        ):
            self._silent_compiler_s += passed * received_share
        else:
            self.quiet_s += passed * received_share

    @property
    def is_stalled(self) -> bool:
        """Whether there was no progress for ``--stall`` seconds, or for longer after a reported
        stall.
        """
        return self.follower.has_begun and self.quiet_s >= self._alarm_s

    def examine_stall(self) -> Stall | None:
        """Examine a stall without disturbing the program. Return None if the run has advanced
        meanwhile.
        """
        try:
            return self._examine()
        except Exception as problem:
            self.problems.add(f"the stall could not be examined: {problem!r}")
            return Stall(
                OUTSIDE, cause="unknown", detail="it could not be examined", seconds=self.quiet_s
            )

    def _examine(self) -> Stall | None:
        main = self.follower.find_main_process(self._root)
        self._gatherer.gather_quietly(main)
        if self._has_moved():
            return None
        evidence = self._gatherer.make_evidence(self._progress_at)
        seen = dataclasses.replace(self._observation(main, self._dumper.dumps), evidence=evidence)
        other_processes = [
            self.follower.describe_process(p)
            for p in self.watch.pids
            if p in self.follower.can_dump and p != main.pid
        ]
        began_s = round(max(self._progress_at - self._began, 0.0), 1)
        stall = waiting.classify_stall(seen, other_processes)
        if stall.state != INSIDE and (
            self._last_output() != self._last_output_at or waiting.is_running(seen)
        ):
            self._record_progress("it advanced while its stacks were dumped")
            return None
        return dataclasses.replace(stall, began_s=began_s, seconds=round(self.quiet_s, 1))

    def record_stall(self, stall: Stall) -> bool:
        """Record a stall that does not end the run. Return whether it differs from the last one."""
        self._alarm_every_s = min(2 * self._alarm_every_s, max(MAX_ALARM_S, self._alarm_every_s))
        self._alarm_s = self.quiet_s + self._alarm_every_s
        last = self.stalls[-1] if self.stalls else None
        is_same = last is not None and (last.state, last.stack) == (stall.state, stall.stack)
        if self._has_open_stall:
            self.stalls.pop()
        self.stalls.append(stall)
        self._has_open_stall = True
        return not is_same

    def gather_stall_evidence(self) -> HangStacks | None:
        """Return the evidence of a stall that ends the run, after :meth:`examine_stall`. Return
        None if a dump by signal shows that the run advances.

        A process that py-spy could not dump is dumped by a signal. If it was waiting, a change of
        its stack does not count, because the signal may have interrupted the wait.
        """
        try:
            main = self.follower.find_main_process(self._root)
            unseen, dumped = self._gatherer.pids_without_dump, list[int]()
            if main.pid in unseen and not self._is_endless(main):
                if self._gatherer.requested_cpu_share(main.pid) < thread_facts.MIN_ACTIVE_SHARE:
                    evidence = self._gatherer.make_evidence(self._progress_at)
                    self._dumper.dump_by_signal(unseen, self._gatherer.first_round)
                    return self._write_stacks(evidence)
                self._gatherer.dump_by_signal(unseen)
                dumped = unseen
                if self._has_moved():
                    return None
            return self._finish_with_signals(main, dumped)
        except Exception as problem:
            self.problems.add(f"the evidence is incomplete: {problem!r}")
            return self.dumps_so_far()

    def gather_final_evidence(self, is_brief: bool = False) -> HangStacks:
        """Return the evidence of a run that ends at its deadline.

        With ``is_brief``, return it quickly, before a signal of the user is forwarded.
        """
        try:
            main = self.follower.find_main_process(self._root)
            if is_brief:
                self._gatherer.gather_quietly(main, BRIEF_DUMP_ROUNDS, BRIEF_GAP_S)
                return self._write_stacks(self._gatherer.make_evidence(self._progress_at))
            self._gatherer.gather_quietly(main)
            return self._finish_with_signals(main, [])
        except Exception as problem:
            self.problems.add(f"the evidence is incomplete: {problem!r}")
            return self.dumps_so_far()

    def dumps_so_far(self) -> HangStacks:
        """Return the dumps that were already taken, without evidence."""
        problems = (*self.problems, *self._dumper.describe_problems())
        return HangStacks(
            tuple(self._dumper.dumps), Evidence(), problems, still_from=self._still_from
        )

    def _finish_with_signals(self, main: MainProcess, dumped: list[int]) -> HangStacks:
        evidence = self._gatherer.make_evidence(self._progress_at)
        evidence = self._gatherer.add_native_evidence(
            evidence, self._observation(main, self._dumper.dumps)
        )
        self._gatherer.dump_rest_by_signal(dumped)
        return self._write_stacks(evidence)

    def _write_stacks(self, evidence: Evidence) -> HangStacks:
        self._gatherer.write_evidence(evidence)
        return self._gatherer.make_hang_stacks(evidence, sorted(self.problems), self._still_from)

    def _has_moved(self) -> bool:
        """Return whether the run advanced while the last rounds were taken, so that it is not
        stalled.
        """
        if news := self.follower.read_news():
            self._record_progress(news[-1])
            return True
        main = self.follower.find_main_process(self._root)
        seen = recent_dumps.only_recent(self._observation(main, self._dumper.dumps), DUMP_ROUNDS)
        if self._is_endless(main) or not location.has_moved(seen, location.phase_at_work(seen)[0]):
            return False
        self._record_progress("the stack changed between two dumps", is_in_stacks=True)
        return True

    def run_progress(self, elapsed_s: float, limit_s: float) -> RunProgress:
        """Return the current status of the run."""
        main = (
            self.follower.find_main_process(self._root)
            if self._shown != self.last_progress
            else self._shown_main
        )
        self._shown, self._shown_main = self.last_progress, main
        now = self.follower.now.get(main.pid)
        named = phases.phase_of_events(main.open_events)
        activity = phases.PHASE_WORDS[named[0]] if named else ""
        rss = self.watch.samples.last_rss_bytes
        is_of_phase = now and named and phases.FINE_HEARTBEAT.get(named[0]) == now.unit
        where = now.where if now and is_of_phase else ""
        return RunProgress(elapsed_s, rss, activity, where, self.quiet_s, limit_s)

    def close(self) -> None:
        """Close the files and release the threads."""
        self._gatherer.close()
        self.watch.close()

    def _record_progress(self, what: str, is_in_stacks: bool = False) -> None:
        if self._has_open_stall:
            self.stalls[-1] = dataclasses.replace(self.stalls[-1], seconds=round(self.quiet_s, 1))
            self._has_open_stall = False
        self._alarm_s = self._alarm_every_s = self._stall_s
        # the last round was taken before the progress, unless the progress is in its stacks
        self._still_from = self._dumper.number + (not is_in_stacks)
        self.quiet_s = self._silent_compiler_s = 0.0
        self._progress_at, self.last_progress = time.monotonic(), cuts.cut_head(what, 300)

    def _dump_interval_s(self) -> float:
        if self._dumped_at < self._progress_at and self.quiet_s >= min(2.0, self._limit / 6):
            return 0.0  # dump now, so that the next dump can be compared with it
        return DUMP_EVERY_S if self.quiet_s < self._limit / 4 else max(1.0, self._limit / 6)

    def _is_endless(self, main: MainProcess) -> bool:
        now = self.follower.now.get(main.pid)
        return now is not None and now.repeats > self.follower.line_repeats

    def _progress_outside_compiler(self, main: MainProcess) -> list[str]:
        """Return the progress of a program outside of the compiler, which writes no events: output,
        data that is read or written, or use of the CPU.

        Use of the GPU does not count: a hanging collective keeps the GPU busy.
        """
        heard = self._last_output()
        is_talking, self._last_output_at = heard != self._last_output_at, heard
        event_phase = phases.phase_of_events(main.open_events)
        phase = self._phase or (event_phase[0] if event_phase else None)
        if is_talking and phase == "backend":
            return ["output of a custom backend"]
        if phase in phases.COMPILE_PHASES or (
            event_phase and event_phase[0] in phases.COMPILE_PHASES
        ):
            return []
        if is_talking:
            return ["output"]
        if self.watch.is_transferring():
            return ["data read or written"]
        is_busy = (
            phase not in ("kernel-run", "collective")
            and not self._is_synchronising
            and any(self.watch.requested_cpu_share(p) > BUSY_SHARE for p in self.watch.pids)
        )
        return ["use of the CPU outside of the compiler"] if is_busy else []

    def _progress_in_stacks(self, main: MainProcess) -> list[str]:
        """Dump the stacks of all instrumented processes, and compare them with the last dumps."""
        can_dump = frozenset(self.follower.can_dump)
        pids = [p for p in self.watch.pids if p in can_dump] or [self._root]
        pids.sort(key=lambda p: p != main.pid)  # dump_round() has a limit
        # a change before the last progress was already counted
        before = self._last_dumps if self._dumped_at >= self._progress_at else []
        self._last_dumps, self._dumped_at = self._dumper.dump_round(pids), time.monotonic()
        seen = self._observation(main, self._last_dumps)
        self._phase, _ = location.phase_at_work(seen)
        # torch waits for a GPU in a busy loop
        self._is_synchronising = any(map(thread_facts.is_gpu_wait, main_stacks(seen)[-1:]))
        if self._is_endless(main):
            return []
        both = [*before, *self._last_dumps]
        for pid in pids:
            seen = self._observation(
                main if pid == main.pid else self.follower.describe_process(pid), both
            )
            if location.has_moved(seen, location.phase_at_work(seen)[0]):
                return [f"the stack of process {pid} changed"]
        return []

    def _observation(self, main: MainProcess, dumps: list[Dump]) -> Observation:
        return Observation(
            main_pid=main.pid,
            working_tid=main.tid,
            open_events=main.open_events,
            dumps=tuple(dumps),
            still_from=self._still_from,
        )
