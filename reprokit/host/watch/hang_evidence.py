"""Gather the evidence why a program does not advance, first with methods that do not disturb it.

These methods read memory and ``/proc``. Native stacks stop the process for a moment, and a dump by
faulthandler sends it a signal. A signal may end the system call that the program hangs in, so it is
sent last.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.judge.hangs import hang_causes
from reprokit.core.judge.stacks.frames import normalise_file
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence, TaskState
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.system import files, host_log, process_tree
from reprokit.host.watch import blocked_on, stacks, waiting_calls
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.lock_uses import LockFinder
from reprokit.host.watch.proc_snapshot import ProcSampler
from reprokit.host.watch.sampler import Sampler

DUMP_ROUNDS = 3
ROUND_GAP_S = 0.7
CONFIRMATION_GAP_S = 0.1
"""Seconds between signals whose stacks only confirm earlier dumps."""


@dataclass(frozen=True)
class HangStacks:
    """The stacks at the end of a run, and the data of the kernel at the same time."""

    dumps: tuple[Dump, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)
    problems: tuple[str, ...] = ()
    seconds_to_stacks: float = 0.0
    """From the start of the gathering to the first stack of the main process."""
    seconds: float = 0.0
    """From the start of the gathering to its end."""
    still_from: int = 0
    """The first round of dumps since the last progress."""


class EvidenceGatherer:
    """Takes stacks and evidence of one program.

    :meth:`gather_quietly` comes first. :meth:`add_native_evidence` stops the program for a moment.
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
        self._locks = LockFinder()
        self._pythons: list[int] = []
        self._began = self._waited = 0.0
        self.first_round = 0

    def gather_quietly(
        self, main: MainProcess, rounds: int = DUMP_ROUNDS, gap_s: float | None = None
    ) -> None:
        """Take ``rounds`` rounds of stacks and of samples from ``/proc``, ``gap_s`` apart."""
        self._began = time.monotonic()
        self.dumper.retry_failed_tools()
        can_dump = self._follower.can_dump
        family = [p.pid for p in process_tree.family_of(self._root)]
        self._pythons = sorted(
            (p for p in family if p in can_dump or process_tree.is_python(p)),
            key=lambda p: (p != main.pid, p),
        )
        self._sampler = ProcSampler()
        self._waited = time.monotonic() - self._began
        self.dumper.seconds_to_first = 0.0
        self.first_round = self.dumper.number + 1
        for number in range(rounds):
            self.dumper.dump_round(self._pythons)
            if number < rounds - 1:
                self._sampler.take_sample(family)
                time.sleep(ROUND_GAP_S if gap_s is None else gap_s)
        # a compiler may have started since the processes were listed
        self._sampler.take_sample([p.pid for p in process_tree.family_of(self._root)])

    @property
    def pids_without_dump(self) -> list[int]:
        """The processes that can dump themselves and that py-spy could not dump in these rounds."""
        seen = {d.pid for d in self.dumper.dumps if d.threads and d.number >= self.first_round}
        return [pid for pid in self._pythons if pid in self._follower.can_dump and pid not in seen]

    def requested_cpu_share(self, pid: int) -> float:
        """Return the share of a CPU that ``pid`` requested during :meth:`gather_quietly`."""
        process = self._sampler.make_evidence({}, {}).process_of_pid(pid)
        return (process.want if process is not None else None) or 0.0

    def dump_by_signal(self, pids: Sequence[int], gap_s: float | None = None) -> None:
        """Add a dump by faulthandler to each round of :meth:`gather_quietly`, ``gap_s`` apart."""
        for number in range(self.first_round, self.dumper.number + 1):
            self.dumper.dump_by_signal(pids, number)
            if pids and number < self.dumper.number:
                time.sleep(ROUND_GAP_S if gap_s is None else gap_s)

    def make_evidence(self, since: float) -> Evidence:
        """Return the data of the kernel about each process.

        ``since`` is the time of the last progress on the monotonic clock.
        """
        self._follower.read_news()
        memory = self._watch.memory_since(since)
        evidence = self._sampler.make_evidence(
            memory, self._follower.gil_ages(), self._watch.gpus.last
        )
        calls = waiting_calls.find_waiting_calls(self._last_round())
        recent = [d for d in self.dumper.dumps if d.number >= self.first_round]
        uses = self._locks.find_lock_uses(recent)
        native = waiting_calls.find_native_calls(self._last_round())
        return dataclasses.replace(
            evidence, waiting_calls=calls, native_calls=native, lock_uses=uses
        )

    def with_tasks(self, evidence: Evidence, tasks: tuple[TaskState, ...]) -> Evidence:
        """Return the evidence with tasks, and with the locks that they hold and wait for."""
        if not tasks:
            return evidence
        threads = tuple(
            ThreadStack(task.pid, f"task {task.name}", task.frames, tid=-number)
            for number, task in enumerate(tasks, 1)
        )
        pids = dict.fromkeys(task.pid for task in tasks)
        dumps = [Dump(0, "tasks", p, tuple(t for t in threads if t.pid == p)) for p in pids]
        objects = {
            (-number, file, line, name): lock
            for number, task in enumerate(tasks, 1)
            for file, line, name, lock in task.locks
        }
        uses = self._locks.find_lock_uses(dumps, objects)
        return dataclasses.replace(evidence, tasks=tasks, lock_uses=(*evidence.lock_uses, *uses))

    def write_evidence(self, evidence: Evidence) -> None:
        """Write the evidence into the run directory; without the file if the disk is full."""
        with host_log.suppress(OSError):
            files.write_json(self._run_path / run_names.EVIDENCE_FILE, to_json(evidence))

    def add_native_evidence(
        self, evidence: Evidence, seen: Observation, is_asked: bool = False
    ) -> Evidence:
        """Add native frames, the lock file and lines of generated code, if the cause may depend on
        them. With ``is_asked``, add the native frames in any case.

        ``seen`` describes the main process, which is stopped for about 0.2 s.
        """
        pid, tid = seen.main_pid or 0, seen.working_tid or seen.main_pid or 0
        process = evidence.process_of_pid(pid)
        thread = next((t for t in process.threads if t.tid == tid), None) if process else None
        if process is None or thread is None:
            return evidence
        cause = hang_causes.diagnose_hang(dataclasses.replace(seen, evidence=evidence)).name
        may_matter = is_asked or cause in hang_causes.CAUSES_WITH_NATIVE_FRAMES
        if may_matter and not set(process.states) & {"T", "t"}:
            native = self.dumper.native_frames(pid)
            threads = tuple(
                dataclasses.replace(t, native=native.get(t.tid, ())) for t in process.threads
            )
            changed = dataclasses.replace(process, threads=threads)
            processes = tuple(changed if p.pid == process.pid else p for p in evidence.processes)
            evidence = dataclasses.replace(evidence, processes=processes)
        evidence = self.with_file_locks(evidence, dataclasses.replace(seen, evidence=evidence))
        return dataclasses.replace(evidence, generated_lines=_generated_lines(self._last_round()))

    def with_file_locks(self, evidence: Evidence, seen: Observation) -> Evidence:
        """Return the evidence with the holders of file locks, if the working thread waits for
        one.
        """
        pid, tid = seen.main_pid or 0, seen.working_tid or seen.main_pid or 0
        process = evidence.process_of_pid(pid)
        thread = next((t for t in process.threads if t.tid == tid), None) if process else None
        if thread is None or hang_causes.diagnose_hang(seen).name != "file-lock":
            return evidence
        lock_file = self.dumper.find_lock_file(pid)
        pids = (p.pid for p in evidence.processes)
        locks = blocked_on.find_locks(pid, pids, [lock_file, thread.waits_for])
        return dataclasses.replace(evidence, lock_file=lock_file, locks=locks)

    def dump_rest_by_signal(self, dumped: Sequence[int]) -> None:
        """Send a signal for a dump to every process that can dump itself, except ``dumped``.

        This comes last, because the signal may change the state of a process.
        """
        can_dump = self._follower.can_dump
        self.dump_by_signal(
            [pid for pid in self._pythons if pid in can_dump and pid not in dumped],
            CONFIRMATION_GAP_S,
        )

    def make_hang_stacks(
        self, evidence: Evidence, problems: Sequence[str], still_from: int
    ) -> HangStacks:
        """Return the gathered stacks with ``evidence``, and how long the gathering took."""
        return HangStacks(
            tuple(self.dumper.dumps),
            evidence,
            (*problems, *self.dumper.describe_problems()),
            round(self._waited + self.dumper.seconds_to_first, 3),
            round(time.monotonic() - self._began, 3),
            still_from,
        )

    def close(self) -> None:
        """Release the threads without waiting: each tool has its own timeout."""
        self.dumper.close()

    def _last_round(self) -> list[Dump]:
        return [d for d in self.dumper.dumps if d.number == self.dumper.number]


def _generated_lines(dumps: list[Dump]) -> dict[str, str]:
    """Return the source lines of generated code on the stacks; the files are deleted after the
    run.
    """
    frames = (frame for dump in dumps for thread in dump.threads for frame in thread.frames)
    lines = ((frame, generated_line(frame)) for frame in frames)
    return {f"{frame.file}:{frame.line}": line for frame, line in lines if line}


def generated_line(frame: Frame) -> str:
    """Return the line of generated code at which a frame is; empty for any other frame."""
    if normalise_file(frame.file) != "<generated>" or not frame.file.startswith("/"):
        return ""
    rows = files.read_text(Path(frame.file), 4 << 20).splitlines()
    return cuts.cut_head(rows[frame.line - 1].strip(), 300) if 0 < frame.line <= len(rows) else ""
