"""Decide from outside whether a run still advances, and what to do when it does not.

Progress is a phase event, a traced line, a lowered node, a graph, a compiler's stack that moves, or
a child at work below the target. A stall is no progress for ``--stall`` seconds of a clock that
runs slower while the target is starved of a processor: on a machine with six times the work it can
do, a minute is six.
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
from reprokit.host.watch.hang_evidence import ROUNDS, Gatherer, HangStacks
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.sampler import Sampler

LOOK_EVERY_S = 10.0
MOST_TICK_S = 2.0
"""A watchdog that was kept from running, or a machine that slept, saw nothing in between."""
COMPILER_PATIENCE = 5
"""A child compiler that works in silence is believed for so many times ``--stall``."""
BRIEF_ROUNDS, BRIEF_GAP_S = 2, 0.25
"""Before a signal of the user's is forwarded, which must not wait."""
MOST_ALARM_S = 600.0
"""A stall that was reported is examined again after twice the time, and at least this often."""


@dataclass
class RunProgress:
    """What a screen may show while the target runs."""

    elapsed_s: float
    rss_bytes: int
    phase_event: str
    position: str
    quiet_s: float = 0.0


class Watchdog:
    """Watches one run; :meth:`tick` as often as you like, :meth:`take` when it is over."""

    def __init__(
        self,
        run_path: Path,
        root_pid: int,
        limit_s: float,
        line_repeats: int,
        last_output: Callable[[], float],
        look_every_s: float = 0.0,
        stall_s: float = 60.0,
    ) -> None:
        """``limit_s``: how long without progress is no more healthy. Others: see
        ``launch.Request``.
        """
        self._run_path, self._root, self._limit = run_path, root_pid, limit_s
        self._last_output, self._heard = last_output, 0.0
        self._look_every, self._sampled = look_every_s, 0.0
        self.watch = Sampler(run_path / run_names.SAMPLES_FILE, root_pid)
        self.follower = JournalFollower(run_path / run_names.JOURNAL_FOLDER, line_repeats)
        self._gatherer = Gatherer(run_path, root_pid, self.follower, self.watch)
        self._dumper = self._gatherer.dumper
        self._look: list[Dump] = []
        self._look_at = 0.0
        self._phase: str | None = None
        self._is_synchronising = False
        self._ticked = self._looked = self._advanced = time.monotonic()
        self._excused = 0.0
        self.problems: set[str] = set()
        self.quiet_s = 0.0
        """Seconds without progress, less those in which the target was starved."""
        self.last_progress = ""
        self.stalls: list[Stall] = []
        """Stalls that did not end the run."""
        self._began, self._has_open_stall = time.monotonic(), False
        self._stall_s = self._alarm_s = self._alarm_every_s = stall_s
        self._still_from = 0
        self._shown, self._teller = "", MainProcess(root_pid)

    def tick(self) -> None:
        """Once a second, see what has advanced; a defect of the watchdog must not end the
        watched.
        """
        try:
            self._tick()
        except Exception as problem:
            self.problems.add(f"the watchdog stumbled: {problem!r}")

    def _tick(self) -> None:
        if not self.watch.tick():
            return
        now = time.monotonic()
        passed, self._ticked = min(now - self._ticked, MOST_TICK_S), now
        news, is_in_stacks = self.follower.look(), False
        teller = self.follower.teller(self._root)
        if self._look_every and self.follower.has_begun and now - self._sampled >= self._look_every:
            self._sampled = now
            self._dumper.round([teller.pid])
        if not news and now - self._looked >= self._look_after():
            self._looked = now
            news = self._moved(teller)
            is_in_stacks = bool(news)
        if not news:
            news = self._outside(teller)
        served = self.watch.served()
        if news:
            self._progress(news[-1], is_in_stacks)
        elif (
            self.watch.working_children(teller.pid)
            and self._excused < COMPILER_PATIENCE * self._limit
        ):
            self._excused += passed * served
        else:
            self.quiet_s += passed * served

    @property
    def is_stalled(self) -> bool:
        """There was no progress for ``--stall`` seconds, or for longer where a stall was reported
        already.
        """
        return self.follower.has_begun and self.quiet_s >= self._alarm_s

    def examine(self) -> Stall | None:
        """Examine a stall without disturbing the program; None where something moved meanwhile."""
        try:
            return self._examine()
        except Exception as problem:
            self.problems.add(f"the stall could not be examined: {problem!r}")
            return Stall(
                OUTSIDE, cause="unknown", detail="it could not be examined", seconds=self.quiet_s
            )

    def _examine(self) -> Stall | None:
        teller = self.follower.teller(self._root)
        self._gatherer.quietly(teller)
        if self._has_moved():
            return None
        evidence = self._gatherer.evidence(self._advanced)
        seen = dataclasses.replace(self._seen(teller, self._dumper.dumps), evidence=evidence)
        others = [
            self.follower.tell(p)
            for p in self.watch.pids
            if p in self.follower.can_dump and p != teller.pid
        ]
        began_s = round(max(self._advanced - self._began, 0.0), 1)
        found = waiting.classify_stall(seen, others)
        if found.state != INSIDE and (
            self._last_output() != self._heard or waiting.is_running(seen)
        ):
            self._progress("it went on while it was looked at")
            return None
        return dataclasses.replace(found, began_s=began_s, seconds=round(self.quiet_s, 1))

    def note(self, stall: Stall) -> bool:
        """Keep a stall that is only reported; True where it says something new."""
        self._alarm_every_s = min(2 * self._alarm_every_s, max(MOST_ALARM_S, self._alarm_every_s))
        self._alarm_s = self.quiet_s + self._alarm_every_s
        last = self.stalls[-1] if self.stalls else None
        is_same = last is not None and (last.state, last.stack) == (stall.state, stall.stack)
        if self._has_open_stall:
            self.stalls.pop()
        self.stalls.append(stall)
        self._has_open_stall = True
        return not is_same

    def conclude(self) -> HangStacks | None:
        """The evidence of a stall that ends the run, after :meth:`examine`; None where signals
        showed that it advances.

        A process that no tool could see from outside is asked by a signal. One that waited moves
        only because the signal interrupted it, so its motion counts as nothing.
        """
        try:
            teller = self.follower.teller(self._root)
            unseen, asked = self._gatherer.unseen, list[int]()
            if teller.pid in unseen and not self._is_endless(teller):
                if self._gatherer.wants(teller.pid) < thread_facts.SOME_SHARE:
                    evidence = self._gatherer.evidence(self._advanced)
                    self._dumper.ask_inside(unseen, self._gatherer.first_round)
                    return self._told(evidence)
                self._gatherer.by_signal(unseen)
                asked = unseen
                if self._has_moved():
                    return None
            return self._loudly(teller, asked)
        except Exception as problem:
            self.problems.add(f"the evidence is incomplete: {problem!r}")
            return self.so_far()

    def take(self, is_brief: bool = False) -> HangStacks:
        """The evidence of a run that ends now: at its deadline, or briefly before a signal of the
        user's is forwarded.
        """
        try:
            teller = self.follower.teller(self._root)
            if is_brief:
                self._gatherer.quietly(teller, BRIEF_ROUNDS, BRIEF_GAP_S)
                return self._told(self._gatherer.evidence(self._advanced))
            self._gatherer.quietly(teller)
            return self._loudly(teller, [])
        except Exception as problem:
            self.problems.add(f"the evidence is incomplete: {problem!r}")
            return self.so_far()

    def so_far(self) -> HangStacks:
        """The dumps there are, without evidence."""
        problems = (*self.problems, *self._dumper.problems())
        return HangStacks(
            tuple(self._dumper.dumps), Evidence(), problems, still_from=self._still_from
        )

    def _loudly(self, teller: MainProcess, asked: list[int]) -> HangStacks:
        evidence = self._gatherer.evidence(self._advanced)
        evidence = self._gatherer.loudly(evidence, self._seen(teller, self._dumper.dumps))
        self._gatherer.ask_all_inside(asked)
        return self._told(evidence)

    def _told(self, evidence: Evidence) -> HangStacks:
        self._gatherer.keep(evidence)
        return self._gatherer.stacks(evidence, sorted(self.problems), self._still_from)

    def _has_moved(self) -> bool:
        """Something advanced while the last rounds were taken: what looked like a stall was
        none.
        """
        if news := self.follower.look():
            self._progress(news[-1])
            return True
        teller = self.follower.teller(self._root)
        seen = recent_dumps.only_recent(self._seen(teller, self._dumper.dumps), ROUNDS)
        if self._is_endless(teller) or not location.has_moved(
            seen, location.phase_at_work(seen)[0]
        ):
            return False
        self._progress("the stack moved while it was dumped", is_in_stacks=True)
        return True

    def progress(self, elapsed_s: float) -> RunProgress:
        """How things stand."""
        teller = (
            self.follower.teller(self._root) if self._shown != self.last_progress else self._teller
        )
        self._shown, self._teller = self.last_progress, teller
        now = self.follower.now.get(teller.pid)
        rss, event = (
            self.watch.samples.last_rss_bytes,
            teller.open_events[-1] if teller.open_events else "",
        )
        return RunProgress(elapsed_s, rss, event, now.where if now else "", self.quiet_s)

    def close(self) -> None:
        """Close what is open."""
        self._gatherer.close()
        self.watch.close()

    def _progress(self, what: str, is_in_stacks: bool = False) -> None:
        if self._has_open_stall:
            self.stalls[-1] = dataclasses.replace(self.stalls[-1], seconds=round(self.quiet_s, 1))
            self._has_open_stall = False
        self._alarm_s = self._alarm_every_s = self._stall_s
        # the last round may have been taken before the progress, unless it is what showed the
        # progress
        self._still_from = self._dumper.number + (not is_in_stacks)
        self.quiet_s = self._excused = 0.0
        self._advanced, self.last_progress = time.monotonic(), cuts.cut_head(what, 300)

    def _look_after(self) -> float:
        if self._look_at < self._advanced and self.quiet_s >= min(2.0, self._limit / 6):
            return 0.0  # something to compare the next look with
        return LOOK_EVERY_S if self.quiet_s < self._limit / 4 else max(1.0, self._limit / 6)

    def _is_endless(self, teller: MainProcess) -> bool:
        now = self.follower.now.get(teller.pid)
        return now is not None and now.repeats > self.follower.line_repeats

    def _outside(self, teller: MainProcess) -> list[str]:
        """Outside of the compiler nothing is journalled: output, data, or a processor at work, is
        progress.

        A GPU at work is none: a collective that hangs keeps it busier than any training does.
        """
        heard = self._last_output()
        is_talking, self._heard = heard != self._heard, heard
        found = phases.phase_of_events(teller.open_events)
        phase = self._phase or (found[0] if found else None)
        if is_talking and phase == "backend":
            return ["output of a custom backend"]
        if phase in phases.COMPILE_PHASES or (found and found[0] in phases.COMPILE_PHASES):
            return []
        if is_talking:
            return ["output"]
        if self.watch.is_transferring():
            return ["data read or written"]
        is_busy = (
            phase not in ("kernel-run", "collective")
            and not self._is_synchronising
            and any(self.watch.want(p) > BUSY_SHARE for p in self.watch.pids)
        )
        return ["a processor at work outside of the compiler"] if is_busy else []

    def _moved(self, teller: MainProcess) -> list[str]:
        """Look at the stacks of all instrumented processes, and compare with the last look."""
        can_dump = frozenset(self.follower.can_dump)
        pids = [p for p in self.watch.pids if p in can_dump] or [self._root]
        pids.sort(key=lambda p: p != teller.pid)  # only so many are looked at
        # what moved before the last progress, and was counted then, is not counted again
        before = self._look if self._look_at >= self._advanced else []
        self._look, self._look_at = self._dumper.round(pids), time.monotonic()
        seen = self._seen(teller, self._look)
        self._phase, _ = location.phase_at_work(seen)
        inner = [f for stack in main_stacks(seen)[-1:] for f in stack[:2]]
        self._is_synchronising = any(
            f.file.startswith("torch/cuda/") and "synchronize" in f.function for f in inner
        )
        if self._is_endless(teller):
            return []
        both = [*before, *self._look]
        for pid in pids:
            seen = self._seen(teller if pid == teller.pid else self.follower.tell(pid), both)
            if location.has_moved(seen, location.phase_at_work(seen)[0]):
                return [f"the stack of process {pid} moved"]
        return []

    def _seen(self, teller: MainProcess, dumps: list[Dump]) -> Observation:
        return Observation(
            main_pid=teller.pid,
            working_tid=teller.tid,
            open_events=teller.open_events,
            dumps=tuple(dumps),
            still_from=self._still_from,
        )
