"""Gather what says why a program does not advance, first without disturbing it, then with what may.

The quiet part reads memory and ``/proc``. The loud part stops the process for a moment (native
stacks) and sends it a signal (faulthandler). A signal may end the very call that the program was
stuck in, so the quiet part decides first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.judge.hangs import hang_causes
from reprokit.core.judge.stacks.frames import normalise_file
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.records.dumps import Dump
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.system import files, process_tree
from reprokit.host.watch import blocked_on, stacks
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.proc_snapshot import ProcSampler
from reprokit.host.watch.sampler import Sampler

ROUNDS = 3
GAP_S = 0.7
LAST_GAP_S = 0.1
"""Between signals whose stacks only confirm what was seen from outside."""
EVIDENCE = run_names.EVIDENCE_FILE


@dataclass(frozen=True)
class HangStacks:
    """What was dumped at the end, and what the kernel said at the same time."""

    dumps: tuple[Dump, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    problems: tuple[str, ...] = ()
    seconds_to_stacks: float = 0.0
    """From the decision to the first stack of the process that is explained."""
    seconds: float = 0.0
    """From the decision to the last of the evidence; judging it takes milliseconds."""
    still_from: int = 0
    """The first round of dumps since the last progress."""


class Gatherer:
    """Takes stacks and evidence of one program; :meth:`quietly` first, :meth:`loudly` only where
    that is allowed.
    """

    def __init__(
        self, run_path: Path, root_pid: int, follower: JournalFollower, watch: Sampler
    ) -> None:
        self.dumper = stacks.StackDumper(run_path)
        self._run_path, self._root, self._follower, self._watch = (
            run_path,
            root_pid,
            follower,
            watch,
        )
        self._sampler = ProcSampler()
        self._pythons: list[int] = []
        self._began = self._waited = 0.0
        self.first_round = 0

    def quietly(
        self, teller: MainProcess, rounds: int = ROUNDS, gap_s: float | None = None
    ) -> None:
        """Take some rounds of stacks and of the kernel's samples, ``gap_s`` apart."""
        self._began = time.monotonic()
        self.dumper.try_all_again()
        can_dump = self._follower.can_dump
        family = [p.pid for p in process_tree.family_of(self._root)]
        self._pythons = sorted(
            (p for p in family if p in can_dump or _is_python(p)),
            key=lambda p: (p != teller.pid, p),
        )
        self._sampler = ProcSampler()
        self._waited = time.monotonic() - self._began
        self.dumper.seconds_to_first = 0.0
        self.first_round = self.dumper.number + 1
        for number in range(rounds):
            self.dumper.round(self._pythons)
            if number < rounds - 1:
                self._sampler.sample(family)
                time.sleep(GAP_S if gap_s is None else gap_s)
        self._sampler.sample(
            [p.pid for p in process_tree.family_of(self._root)]
        )  # a compiler may have been started since

    @property
    def unseen(self) -> list[int]:
        """Processes that can dump themselves, and that no tool could dump from outside in these
        rounds.
        """
        seen = {d.pid for d in self.dumper.dumps if d.threads and d.number >= self.first_round}
        return [pid for pid in self._pythons if pid in self._follower.can_dump and pid not in seen]

    def wants(self, pid: int) -> float:
        """The share of a processor that ``pid`` wanted during the quiet rounds."""
        process = self._sampler.evidence({}, {}).process(pid)
        return (process.want if process is not None else None) or 0.0

    def by_signal(self, pids: Sequence[int], gap_s: float | None = None) -> None:
        """Ask ``pids`` for their own stacks, once for each of the quiet rounds, ``gap_s`` apart."""
        for number in range(self.first_round, self.dumper.number + 1):
            self.dumper.ask_inside(pids, number)
            if pids and number < self.dumper.number:
                time.sleep(GAP_S if gap_s is None else gap_s)

    def evidence(self, since: float) -> Evidence:
        """What the kernel says of each process; ``since`` is the time of the last progress
        (monotonic).
        """
        self._follower.look()
        memory = self._watch.memory(since)
        return self._sampler.evidence(memory, self._follower.gil_ages(), self._watch.gpus.last)

    def keep(self, evidence: Evidence) -> None:
        """Write the evidence into the run directory; a full disk costs only the file."""
        with contextlib.suppress(OSError):
            files.write_json(self._run_path / EVIDENCE, to_json(evidence))

    def loudly(self, evidence: Evidence, seen: Observation) -> Evidence:
        """Native frames, the lock file and the generated line, where the cause may depend on them.

        ``seen`` is the process that is explained. It is stopped for some 0.2 s.
        """
        pid, tid = seen.main_pid or 0, seen.working_tid or seen.main_pid or 0
        process = evidence.process(pid)
        thread = next((t for t in process.threads if t.tid == tid), None) if process else None
        if process is None or thread is None:
            return evidence
        cause = hang_causes.diagnose_hang(dataclasses.replace(seen, evidence=evidence)).name
        if cause in _NATIVE_TELLS and not set(process.states) & {"T", "t"}:
            native = self.dumper.native(pid)
            threads = tuple(
                dataclasses.replace(t, native=native.get(t.tid, ())) for t in process.threads
            )
            changed = dataclasses.replace(process, threads=threads)
            processes = tuple(changed if p.pid == process.pid else p for p in evidence.processes)
            evidence = dataclasses.replace(evidence, processes=processes)
        lock_file = self.dumper.lock_file(pid) if cause == "file-lock" else ""
        paths = [lock_file, thread.waits_for] if cause == "file-lock" else []
        locks = (
            blocked_on.held_locks(pid, (p.pid for p in evidence.processes), paths)
            if cause == "file-lock"
            else ()
        )
        return dataclasses.replace(
            evidence,
            lock_file=lock_file,
            locks=locks,
            generated_lines=_generated_lines(self._last_round()),
        )

    def ask_all_inside(self, asked: Sequence[int]) -> None:
        """Ask every process that can dump itself and was not ``asked`` yet; last of all, as a
        signal may change what it does.
        """
        can_dump = self._follower.can_dump
        self.by_signal(
            [pid for pid in self._pythons if pid in can_dump and pid not in asked], LAST_GAP_S
        )

    def stacks(self, evidence: Evidence, problems: Sequence[str], still_from: int) -> HangStacks:
        """All that was gathered, with how long it took."""
        to_first, whole = (
            self._waited + self.dumper.seconds_to_first,
            time.monotonic() - self._began,
        )
        told = (*problems, *self.dumper.problems())
        return HangStacks(
            tuple(self.dumper.dumps),
            evidence,
            told,
            round(to_first, 3),
            round(whole, 3),
            still_from,
        )

    def close(self) -> None:
        """Wait for no tool: each has a timeout of its own."""
        self.dumper.close()

    def _last_round(self) -> list[Dump]:
        return [d for d in self.dumper.dumps if d.number == self.dumper.number]


_NATIVE_TELLS = frozenset(
    {"lock-deadlock", "native-wait", "native-loop", "native-loop-holding-gil", "gil-blocked"}
)
"""Causes that native frames confirm, change or name better."""


def _generated_lines(dumps: list[Dump]) -> dict[str, str]:
    """The source text of generated code on the stack: the files are gone after the run."""
    found = {}
    for dump in dumps:
        for frame in (f for t in dump.threads for f in t.frames):
            if normalise_file(frame.file) == "<generated>" and frame.file.startswith("/"):
                rows = files.read_text(Path(frame.file), 4 << 20).splitlines()
                if 0 < frame.line <= len(rows):
                    found[f"{frame.file}:{frame.line}"] = cuts.cut_head(
                        rows[frame.line - 1].strip(), 300
                    )
    return found


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return False
