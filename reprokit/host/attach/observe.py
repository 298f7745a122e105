"""Observe a running process from outside, without stopping it, until it advances or long enough."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

from reprokit.core.judge import attached
from reprokit.core.judge.hangs import wait_kinds, waiting
from reprokit.core.judge.stacks import location, main_process, phases, recent_dumps
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.process_state import BUSY_SHARE, Evidence, TaskState
from reprokit.core.shared.contract import run_names
from reprokit.host.attach import open_requests
from reprokit.host.attach.prepared import PreparedProcesses
from reprokit.host.request.run_request import Request
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import host_log, interrupts, process_tree
from reprokit.host.system.progress import OperationStatus
from reprokit.host.watch import blocked_on
from reprokit.host.watch.hang_evidence import DUMP_ROUNDS, EvidenceGatherer, HangStacks
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.sampler import Sampler

POLL_S = 0.2
WAITS = frozenset("wait4 waitid read poll ppoll select pselect6".split())
"""System calls in which a thread waits for a child or its output."""
DUMPS_PER_STALL = 6
"""Stacks are compared this many times in ``--stall``, but at most once a second."""


class ProcessObserver:
    """Observes one process tree. :meth:`look` comes first, and takes about two seconds.

    With ``may_signal``, a process that called ``reprokit.watch()`` is asked for its stacks with a
    signal if they cannot be read.
    """

    def __init__(
        self,
        request: Request,
        run_path: Path,
        ports: Collection[int] = (),
        *,
        may_signal: bool = False,
    ) -> None:
        self._root, self._stall_s, self._ports = request.attached_pid, request.stall_s, ports
        self._may_signal = may_signal
        self._quiet_before_s = request.quiet_before_s
        self._watch = Sampler(run_path / run_names.SAMPLES_FILE, self._root)
        self._prepared = PreparedProcesses(run_path)
        self._follower = JournalFollower(run_path / run_names.JOURNAL_FOLDER, request.line_repeats)
        self._gatherer = EvidenceGatherer(run_path, self._root, self._follower, self._watch)
        self._gatherer.dumper.memory_files = self._prepared.stack_files
        self._began, self._started = time.monotonic(), time.time()
        self._progress, self._missing = "", list[Missing]()
        self._tasks: tuple[TaskState, ...] = ()
        self._waits: dict[tuple[int, int], int] = {}
        self._jobs: set[tuple[int, int]] = set()
        self._was_busy = False
        self._evidence, self._seen = Evidence(), Observation(main_pid=self._root)
        self._children = _pids_below(self._main().pid)

    @property
    def limit_s(self) -> float:
        """Seconds of observation without progress that are a hang."""
        return attached.seconds_of_hang(self._seen, self._stall_s)

    def look(self) -> RunOutcome:
        """Take three rounds of stacks and of samples, and return what they show."""
        self._watch.sample_if_due()
        self._read_journals()
        self._gather()
        self._is_alive()
        if not self._progress and phases.is_compiling(self._seen.open_events):
            quiet_s = self._prepared.quiet_s(self._main().pid) - self._elapsed()
            self._quiet_before_s = max(self._quiet_before_s, round(quiet_s, 3))
        return self._outcome()

    def observe_longer(
        self,
        show: Callable[[OperationStatus], None] | None,
        most_s: float,
        ends_with_progress: bool,
    ) -> RunOutcome:
        """Observe for ``most_s`` seconds from the start, or until the process advances.

        An interrupt by the user ends the observation.
        """
        left_s = max(most_s - self._elapsed(), 0.0)
        status = OperationStatus(
            "observing", "nothing moves so far" * ends_with_progress, limit_s=left_s
        )
        gap, dumped = max(1.0, self._stall_s / DUMPS_PER_STALL), time.monotonic()
        self._check_jobs()
        # what reprokit ran inside the process was no progress
        self._watch.take_sample()
        self._read_journals()
        with host_log.suppress(KeyboardInterrupt), interrupts.allowed():
            while self._elapsed() < most_s and not (self._progress and ends_with_progress):
                time.sleep(POLL_S)
                if show:
                    show(status)
                if not self._is_alive():
                    break
                self._check_samples()
                if time.monotonic() - dumped >= gap:
                    dumped = time.monotonic()
                    self._gatherer.dumper.dump_round([self._main().pid])
                    self._seen = self._observation()
                    self._check_stacks()
                    self._check_waits()
                    self._check_jobs()
        if self._is_alive():
            self._gather()
        return self._outcome()

    def add_tasks(self, tasks: tuple[TaskState, ...]) -> RunOutcome:
        """Take the tasks of asyncio that the processes recorded."""
        self._tasks = tasks
        self._evidence = self._gatherer.with_tasks(self._evidence, tasks)
        self._gatherer.write_evidence(self._evidence)
        self._seen = self._observation()
        return self._outcome()

    @property
    def pids_with_tasks(self) -> list[int]:
        """The processes that run an event loop of asyncio, as far as their stacks show it."""
        last = self._gatherer.dumper.number
        return [
            dump.pid
            for dump in self._gatherer.dumper.dumps
            if dump.number == last and wait_kinds.runs_loop(dump)
        ]

    def waits_in_selector(self, pid: int) -> bool:
        """Return whether the main thread of a process waits in ``select`` of the module selectors,
        as an event loop of asyncio does.
        """
        dump = next((d for d in reversed(self._gatherer.dumper.dumps) if d.pid == pid), None)
        return dump is not None and wait_kinds.waits_in_selector(dump)

    def add_native_frames(self) -> RunOutcome:
        """Read the native frames too, which stops the process for about 0.2 s."""
        self._evidence = self._gatherer.add_native_evidence(
            self._evidence, self._seen, is_asked=True
        )
        self._gatherer.write_evidence(self._evidence)
        return self._outcome()

    def close(self) -> None:
        """Close the files and release the threads."""
        self._gatherer.close()
        self._watch.close()

    def _gather(self) -> None:
        self._gatherer.gather_quietly(self._main())
        if self._may_signal:
            self._gatherer.dump_by_signal(self._gatherer.pids_without_dump)
        self._seen = self._observation()
        self._check_samples()
        family = [process.pid for process in process_tree.family_of(self._root)]
        connections = open_requests.list_connections()
        is_http = wait_kinds.serve_http(self._gatherer.dumper.dumps)
        self._evidence = dataclasses.replace(
            self._gatherer.make_evidence(self._began),
            own_ports=open_requests.find_own_ports(family, connections),
            requests=open_requests.find_waiting_requests(
                family, self._ports, connections, is_http=is_http
            ),
        )
        self._evidence = self._gatherer.with_tasks(self._evidence, self._tasks)
        self._seen = self._observation()
        self._evidence = self._gatherer.with_file_locks(self._evidence, self._seen)
        self._seen = self._observation()
        self._gatherer.write_evidence(self._evidence)
        self._check_stacks()

    def _check_jobs(self) -> None:
        """Note that each thread has ended which ran a request or a job at the first look: others
        may be in the same line.
        """
        pid = self._main().pid
        dump = next((d for d in reversed(self._gatherer.dumper.dumps) if d.pid == pid), None)
        if dump is None or not dump.threads:
            return
        living = {(pid, thread.tid) for thread in dump.threads}
        before = {job for job in self._jobs if job[0] == pid}
        jobs = {(pid, t.tid) for t in dump.threads if wait_kinds.runs_job(t.frames)}
        self._jobs = before & living if before else jobs
        if before and not self._jobs and not self._progress:
            self._progress = "each request and job that ran at the first look has ended"

    def _check_waits(self) -> None:
        """Note a thread that waited for a different one at two looks, and ran between them: a step
        of a training may end in the same line each time.
        """
        main = self._main()
        pids = main_process.ranks_of_evidence(self._evidence).values()
        threads = {(main.pid, main.tid or main.pid), *((pid, pid) for pid in pids)}
        waits = {
            (pid, tid): blocked_on.waits_so_far(pid, tid)
            for pid, tid in threads
            if blocked_on.waits_for_long(pid, tid)
        }
        before, self._waits = self._waits, waits
        ran = [pid for (pid, tid), n in waits.items() if n > before.get((pid, tid), n) + 1]
        if ran and not self._progress:
            self._progress = f"process {ran[0]} waited, ran and waited again while it was observed"

    def _check_stacks(self) -> None:
        """Note a change of the stack of the main process in the last rounds."""
        seen = recent_dumps.only_recent(self._seen, DUMP_ROUNDS)
        phase = location.phase_at_work(seen)[0]
        if not self._progress and location.has_moved(seen, phase):
            self._progress = "its stack changed while it was observed"

    def _check_samples(self) -> None:
        """Note a compiler that works for the process, and work outside of the compiler."""
        if self._progress or not self._watch.sample_if_due():
            return
        if (news := self._read_journals()) and phases.is_compiling(self._seen.open_events):
            self._progress = f"its compiler advances: {news[-1]}"
            return
        main = self._main().pid
        if working := self._watch.working_children(main):
            self._progress = f"it waits for {working[0]}, which works"
            return
        phase = location.phase_at_work(self._seen)[0]
        if phase in phases.COMPILE_PHASES:
            return
        if self._watch.is_transferring():
            self._progress = "it reads or writes data"
        elif phase == "eager" and self._is_busy(main):
            self._progress = "it uses the CPU outside of the compiler"
        elif phase == "eager" and self._waits_for_new_child():
            self._progress = "it waits for a different child than before"

    def _is_busy(self, pid: int) -> bool:
        """Return whether a process requested the CPU in the last two samples.

        On a loaded machine, many threads that wake for a moment wait for a CPU together, so one
        sample is no evidence. If the process received what it requested, it is.
        """
        requested = self._watch.requested_cpu_share(pid) > BUSY_SHARE
        before, self._was_busy = self._was_busy, requested
        return requested and (before or self._watch.received_cpu_share() > BUSY_SHARE)

    def _waits_for_new_child(self) -> bool:
        """Return whether all children that were seen before have been replaced."""
        main = self._main()
        name, _ = blocked_on.current_system_call(main.pid, main.tid or main.pid)
        children = _pids_below(main.pid)
        if name not in WAITS or not children:
            return False
        before, self._children = self._children, children
        return bool(before) and not before & children

    def _main(self) -> MainProcess:
        return MainProcess(self._seen.main_pid or self._root, tid=self._seen.working_tid)

    def _read_journals(self) -> list[str]:
        """Describe the progress since the last call of processes that called ``watch()``."""
        self._prepared.copy_news([p.pid for p in process_tree.family_of(self._root)])
        self._follower.can_dump.update(self._prepared.stack_files)
        return self._follower.read_news()

    def _observation(self) -> Observation:
        main = main_process.find_observed(
            self._gatherer.dumper.dumps, self._follower.living, self._root
        )
        return waiting.choose_stuck_thread(
            Observation(
                dumps=tuple(self._gatherer.dumper.dumps),
                evidence=self._evidence,
                main_pid=main.pid,
                working_tid=main.tid,
                open_events=main.open_events,
                is_attached=True,
            )
        )

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _is_alive(self) -> bool:
        if process_tree.has_ended(self._root):
            why = "the process ended while it was observed"
            self._missing, self._progress = [Missing("stacks", why)], attached.ENDED
            return False
        return True

    def _outcome(self) -> RunOutcome:
        stacks: HangStacks = self._gatherer.make_hang_stacks(self._evidence, (), 0)
        used, rss = 0.0, 0
        with host_log.suppress(psutil.Error):
            times = psutil.Process(self._root).cpu_times()
            used, rss = times.user + times.system, self._watch.samples.peak_rss_bytes
        problems = [Missing("stacks", problem) for problem in stacks.problems]
        return RunOutcome(
            exit_status=None,
            is_timed_out=True,
            is_stalled=False,
            is_interrupted=False,
            quiet_s=(0.0 if self._progress else round(self._quiet_before_s + self._elapsed(), 3)),
            last_progress=self._progress,
            seconds=round(self._elapsed(), 3),
            cpu_s=round(used, 3),
            cpu_by_pid={},
            peak_rss_bytes=rss,
            started=self._started,
            ended=time.time(),
            main_pid=self._root,
            stacks=stacks,
            oom_evidence="",
            last_output=0.0,
            watch_cpu_s=0.0,
            missing=(*self._missing, *problems),
            quiet_before_s=self._quiet_before_s,
        )


def _pids_below(pid: int) -> frozenset[int]:
    return frozenset(child.pid for child in process_tree.family_of(pid)[1:])
