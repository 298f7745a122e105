"""Decide from outside whether a run still advances, and gather what says why it does not.

Progress is a phase event, a traced line, a lowered node, a graph, a compiler's stack that moves, or a child at
work below the target. A stall is no progress for ``--stall`` seconds of a clock that runs slower while
the target is starved of a processor: on a machine with six times the work it can do, a minute is six.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..core import causes, facts, phases, where
from ..core.frames import normalise_file
from ..core.processes import BUSY_SHARE, Evidence
from ..core.records import Dump, Observation, to_json
from ..core.signature import main_stacks
from ..core.story import Teller
from . import files, stacks, tree, waits
from .evidence import Sampler
from .follow import Follower
from .watch import Watch

LOOK_EVERY_S = 10.0
MOST_TICK_S = 2.0
"""A watchdog that was kept from running, or a machine that slept, saw nothing in between."""
COMPILER_PATIENCE = 5
"""A child compiler that works in silence is believed for so many times ``--stall``."""
ROUNDS = 3
GAP_S = 0.7
EVIDENCE = "evidence.json"


@dataclass(frozen=True)
class Stacks:
    """What was dumped at the end, and what the kernel said at the same time."""

    dumps: tuple[Dump, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    problems: tuple[str, ...] = ()
    seconds_to_stacks: float = 0.0
    """From the decision to the first stack of the process whose story is told."""
    seconds: float = 0.0
    """From the decision to the last of the evidence; judging it takes milliseconds."""


@dataclass
class Progress:
    """What a screen may show while the target runs."""

    elapsed_s: float
    rss_bytes: int
    phase_event: str
    position: str
    quiet_s: float = 0.0


class Lookout:
    """Watches one run; :meth:`tick` as often as you like, :meth:`take` when it is over."""

    def __init__(
        self, run_path: Path, root_pid: int, limit_s: float, line_repeats: int, last_output: Callable[[], float],
        look_every_s: float = 0.0,
    ) -> None:  # fmt: skip
        """``limit_s``: how long without progress is no more healthy. ``look_every_s``: see ``launch.Request``."""
        self._run_path, self._root, self._limit = run_path, root_pid, limit_s
        self._last_output, self._heard = last_output, 0.0
        self._look_every, self._sampled = look_every_s, 0.0
        self.watch = Watch(run_path / "samples.csv", root_pid)
        self.follower = Follower(run_path / "journal", line_repeats)
        self._dumper = stacks.Dumper(run_path)
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
        self._shown, self._teller = "", Teller(root_pid)

    def tick(self) -> None:
        """Once a second, see what has advanced; a defect of the watchdog must not end the watched."""
        try:
            self._tick()
        except Exception as problem:
            self.problems.add(f"the watchdog stumbled: {problem!r}")

    def _tick(self) -> None:
        if not self.watch.tick():
            return
        now = time.monotonic()
        passed, self._ticked = min(now - self._ticked, MOST_TICK_S), now
        news = self.follower.look()
        teller = self.follower.teller(self._root)
        if self._look_every and self.follower.has_begun and now - self._sampled >= self._look_every:
            self._sampled = now
            self._dumper.round([teller.pid], frozenset(), ask_inside=False)
        if not news and now - self._looked >= self._look_after():
            self._looked = now
            news = self._moved(teller)
        if not news:
            news = self._outside(teller)
        served = self.watch.served()
        if news:
            self._progress(news[-1])
        elif self.watch.working_children(teller.pid) and self._excused < COMPILER_PATIENCE * self._limit:
            self._excused += passed * served
        else:
            self.quiet_s += passed * served

    def take(self, is_stall: bool = False) -> Stacks | None:
        """Dump every process of the tree three times, and ask the kernel about each.

        None for a stall that was none: the compiler's stack moved while it was dumped.
        """
        try:
            return self._take(is_stall)
        except Exception as problem:
            self.problems.add(f"the evidence is incomplete: {problem!r}")
            return self.so_far()

    def so_far(self) -> Stacks:
        """The dumps there are, without evidence."""
        return Stacks(tuple(self._dumper.dumps), Evidence(), (*self.problems, *self._dumper.problems()))

    def _take(self, is_stall: bool) -> Stacks | None:
        began = time.monotonic()
        self._dumper.try_all_again()
        teller = self.follower.teller(self._root)
        family = [p.pid for p in tree.family(self._root)]
        can_dump = frozenset(self.follower.can_dump)
        pythons = sorted((p for p in family if p in can_dump or _is_python(p)), key=lambda p: (p != teller.pid, p))
        sampler = Sampler()
        waited = time.monotonic() - began
        self._dumper.seconds_to_first = 0.0
        for number in range(ROUNDS):
            self._look = self._dumper.round(pythons, can_dump, ask_inside=True)
            if number < ROUNDS - 1:
                sampler.sample(family)
                time.sleep(GAP_S)
        sampler.sample([p.pid for p in tree.family(self._root)])  # a compiler may have been started since
        if is_stall and self._has_moved():
            return None
        self.follower.look()
        memory = self.watch.memory(self._advanced)
        evidence = sampler.evidence(memory, self.follower.gil_ages(), self.watch.gpus.last)
        evidence = self._asked_more(evidence, teller)
        with contextlib.suppress(OSError):
            files.write_json(self._run_path / EVIDENCE, to_json(evidence))
        seconds = (round(s, 3) for s in (waited + self._dumper.seconds_to_first, time.monotonic() - began))
        return Stacks(tuple(self._dumper.dumps), evidence, (*self.problems, *self._dumper.problems()), *seconds)

    def _has_moved(self) -> bool:
        """The last rounds show a compiler's stack that moves: what looked like a stall was none."""
        teller = self.follower.teller(self._root)
        seen = facts.recent(self._seen(teller, self._dumper.dumps), ROUNDS)
        phase, _ = where.at_work(seen)
        if phase not in phases.COMPILE_PHASES or not where.has_moved(seen, phase) or self._is_endless(teller):
            return False
        self._progress("the stack moved while it was dumped")
        return True

    def progress(self, elapsed_s: float) -> Progress:
        """How things stand."""
        teller = self.follower.teller(self._root) if self._shown != self.last_progress else self._teller
        self._shown, self._teller = self.last_progress, teller
        now = self.follower.now.get(teller.pid)
        rss, event = self.watch.samples.last_rss_bytes, teller.open_events[-1] if teller.open_events else ""
        return Progress(elapsed_s, rss, event, now.where if now else "", self.quiet_s)

    def close(self) -> None:
        """Close what is open."""
        self._dumper.close()
        self.watch.close()

    def _progress(self, what: str) -> None:
        self.quiet_s = self._excused = 0.0
        self._advanced, self.last_progress = time.monotonic(), what[:300]

    def _look_after(self) -> float:
        if self._look_at < self._advanced and self.quiet_s >= min(2.0, self._limit / 6):
            return 0.0  # something to compare the next look with
        return LOOK_EVERY_S if self.quiet_s < self._limit / 4 else max(1.0, self._limit / 6)

    def _is_endless(self, teller: Teller) -> bool:
        now = self.follower.now.get(teller.pid)
        return now is not None and now.repeats > self.follower.line_repeats

    def _outside(self, teller: Teller) -> list[str]:
        """Outside of the compiler nothing is journalled: output, data, or a processor at work, is progress.

        A GPU at work is none: a collective that hangs keeps it busier than any training does.
        """
        heard = self._last_output()
        is_talking, self._heard = heard != self._heard, heard
        found = phases.of_events(teller.open_events)
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

    def _moved(self, teller: Teller) -> list[str]:
        """Look at the stacks of all instrumented processes, and compare with the last look."""
        can_dump = frozenset(self.follower.can_dump)
        pids = [p for p in self.watch.pids if p in can_dump] or [self._root]
        pids.sort(key=lambda p: p != teller.pid)  # only so many are looked at
        # what moved before the last progress, and was counted then, is not counted again
        before = self._look if self._look_at >= self._advanced else []
        self._look, self._look_at = self._dumper.round(pids, can_dump, ask_inside=False), time.monotonic()
        seen = self._seen(teller, self._look)
        self._phase, _ = where.at_work(seen)
        inner = [f for stack in main_stacks(seen)[-1:] for f in stack[:2]]
        self._is_synchronising = any(f.file.startswith("torch/cuda/") and "synchronize" in f.function for f in inner)
        if self._is_endless(teller):
            return []
        both = [*before, *self._look]
        for pid in pids:
            seen = self._seen(teller if pid == teller.pid else self.follower.tell(pid), both)
            if where.has_moved(seen, where.at_work(seen)[0]):
                return [f"the stack of process {pid} moved"]
        return []

    def _seen(self, teller: Teller, dumps: list[Dump]) -> Observation:
        return Observation(
            main_pid=teller.pid, working_tid=teller.tid, open_events=teller.open_events, dumps=tuple(dumps)
        )

    def _asked_more(self, evidence: Evidence, teller: Teller) -> Evidence:
        """Native frames, the lock file and the generated line, where the cause may depend on them."""
        seen = dataclasses.replace(self._seen(teller, self._dumper.dumps), evidence=evidence)
        process = evidence.process(teller.pid)
        thread = next((t for t in process.threads if t.tid == (teller.tid or teller.pid)), None) if process else None
        if process is None or thread is None:
            return evidence
        cause = causes.diagnose(seen).name
        if cause in _NATIVE_TELLS and not set(process.states) & {"T", "t"}:
            native = self._dumper.native(teller.pid)
            threads = tuple(dataclasses.replace(t, native=native.get(t.tid, ())) for t in process.threads)
            changed = dataclasses.replace(process, threads=threads)
            processes = tuple(changed if p.pid == process.pid else p for p in evidence.processes)
            evidence = dataclasses.replace(evidence, processes=processes)
        lock_file = self._dumper.lock_file(teller.pid) if cause == "file-lock" else ""
        paths = [lock_file, thread.waits_for] if cause == "file-lock" else []
        locks = waits.held_locks(teller.pid, (p.pid for p in evidence.processes), paths) if cause == "file-lock" else ()
        return dataclasses.replace(
            evidence, lock_file=lock_file, locks=locks, generated_lines=_generated_lines(self._look)
        )


_NATIVE_TELLS = frozenset({"lock-deadlock", "native-wait", "native-loop", "native-loop-holding-gil", "gil-blocked"})
"""Causes that native frames confirm, change or name better."""


def _generated_lines(dumps: list[Dump]) -> dict[str, str]:
    """The source text of generated code on the stack: the files are gone after the run."""
    found = {}
    for dump in dumps:
        for frame in (f for t in dump.threads for f in t.frames):
            if normalise_file(frame.file) == "<generated>" and frame.file.startswith("/"):
                rows = files.read_text(Path(frame.file), 4 << 20).splitlines()
                if 0 < frame.line <= len(rows):
                    found[f"{frame.file}:{frame.line}"] = rows[frame.line - 1].strip()[:300]
    return found


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return False
