"""The client of the probe server, which runs each program in a forked child.

Each probe has its own run directory and the same :class:`RunOutcome` as a run of
``host/run/supervise.py``, so that both are judged in the same way. Seconds in which the child waits
for a CPU do not count for a deadline, so that a busy machine does not change an answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.records.process_state import Evidence
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.probe_messages import (
    ProbeEnded,
    ProbeRequest,
    ProbeStarted,
    ServerReady,
    ServerSpec,
)
from reprokit.core.shared.contract.serialize import from_json, to_json
from reprokit.host.probe.candidate import ProbeLimits
from reprokit.host.request import run_request
from reprokit.host.run import launch, run_directory
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import (
    compiler_cache,
    deletion,
    files,
    guardian_client,
    interrupts,
    process_tree,
)
from reprokit.host.watch.hang_evidence import HangStacks
from reprokit.host.watch.stacks import StackDumper

START_TIMEOUT_S = 240.0
DUMP_ROUNDS = 3
ROUND_GAP_S = 0.15
POLL_S = 0.02
MAX_MEMORY_SHARE = 0.7
"""The share of the free memory that one probe may use."""
MAX_FILE_BYTES = 1 << 30
REAP_TIMEOUT_S = 20.0


class ServerLost(Exception):
    """The server ended; the message has the last line of its log."""


class ProbeServer:
    """A process that has imported torch and forks a child for each probe.

    It starts with the first probe, and again after :class:`ServerLost`.
    """

    def __init__(
        self, folder: Path, python: str, depth: str, gpu: Mapping[str, Any] | None = None
    ) -> None:
        """``folder`` has the run directories of the probes; ``gpu`` is simulated in all of them."""
        self.folder, self._python, self._depth, self._gpu = folder, python, depth, gpu
        self._run_id = uuid.uuid4().hex
        self._stack = contextlib.ExitStack()
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._number = 0
        self.cpu_s = 0.0
        """CPU seconds of all probes and starts of the server."""
        self._probes_cpu_s = 0.0
        self.starts = 0

    def __enter__(self) -> ProbeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_program(
        self,
        text: str,
        limits: ProbeLimits,
        is_eager: bool = False,
        role: str = "",
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[RunOutcome, Path]:
        """Run a program in a forked child. Return the outcome and the run directory, which the
        caller deletes.

        In a ``role``, the program writes its results to ``RESULTS_FOLDER`` of the server, where the
        next role compares them.
        """
        folder = self._make_folder()
        file = files.write_atomically(folder / run_names.REPRO_FILE, text)
        request = self._request(folder, limits, is_eager, role, overrides)
        request = dataclasses.replace(request, file=str(file))
        return self._run_with_cache(request, folder, limits), folder

    def run_target(
        self,
        request: run_request.Request,
        limits: ProbeLimits,
        is_eager: bool = False,
        role: str = "",
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[RunOutcome, Path]:
        """Run a factory target in a forked child, as :meth:`run_program` does."""
        folder = self._make_folder()
        probe = self._request(folder, limits, is_eager, role, overrides)
        probe = dataclasses.replace(probe, target=run_request.factory_spec(request))
        return self._run_with_cache(probe, folder, limits), folder

    def _request(
        self,
        folder: Path,
        limits: ProbeLimits,
        is_eager: bool,
        role: str,
        overrides: Mapping[str, Any] | None,
    ) -> ProbeRequest:
        return ProbeRequest(
            id=self._number,
            folder=str(folder),
            is_eager=is_eager,
            overrides=dict(overrides or {}),
            role=role,
            results=str(self.folder / RESULTS_FOLDER),
            stop=limits.stop,
            is_backward=limits.is_backward,
            memory_bytes=int(psutil.virtual_memory().available * MAX_MEMORY_SHARE),
            file_bytes=MAX_FILE_BYTES,
            openblas_threads=os.environ.get("OPENBLAS_NUM_THREADS"),
        )

    def _make_folder(self) -> Path:
        if self._child is None:
            self._start()
        self._number += 1
        folder = self.folder / f"probe-{self._number:04d}"
        deletion.delete_path(folder, inside=self.folder)
        run_directory.make_folders(folder)
        return folder

    def _run_with_cache(
        self, request: ProbeRequest, folder: Path, limits: ProbeLimits
    ) -> RunOutcome:
        compiler_cache.link_cache(self._cache, folder / run_names.CACHE_FOLDER)
        try:
            return self._run(request, folder, limits)
        finally:
            deletion.delete_path(folder / run_names.CACHE_FOLDER, inside=self.folder)
            compiler_cache.delete_partial_headers()

    def close(self) -> None:
        """End the server and its children."""
        child, self._child = self._child, None
        with interrupts.blocked():
            self._end(child)

    def _end(self, child: subprocess.Popen[bytes] | None) -> None:
        if child is not None:
            process_tree.kill_process_tree(child.pid, self._run_id)
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
            # the usage of its children was added before
            self.cpu_s += max(used.ru_utime + used.ru_stime - self._probes_cpu_s, 0.0)
            self._probes_cpu_s = 0.0
        self._stack.close()

    def _start(self) -> None:
        self._stack = contextlib.ExitStack()
        self._rest = b""
        self._run_id = uuid.uuid4().hex
        self.starts += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        if guardian := guardian_client.watch_run_id(self._run_id, (self.folder,)):
            self._stack.callback(guardian.dismiss)
        agent = self._stack.enter_context(launch.copied_agent(self.folder, frozenset(launch.PARTS)))
        environ = launch.environment_without_reprokit()
        environ.update(
            PYTHONPATH=launch.agent_python_path(agent), **{run_names.RUN_ID_VARIABLE: self._run_id}
        )
        environ.update(
            REPROKIT_WATCHDOG_PID=str(os.getpid()), **launch.simulation_variables(self._gpu)
        )
        environ.pop("TORCH_TRACE", None)
        # threads of numpy in the server would prevent the fork; the children get the user's value
        environ["OPENBLAS_NUM_THREADS"] = "1"
        self._cache = self.folder / "warm"
        deletion.delete_path(self._cache, inside=self.folder)
        compiler_cache.delete_partial_headers()
        kept = compiler_cache.kept_cache_folder(self._python)
        compiler_cache.copy_cache(kept, self._cache)
        spec = json.dumps(to_json(ServerSpec(depth=self._depth, cache=str(self._cache))))
        log = self._stack.enter_context((self.folder / "server.txt").open("wb"))
        self._child = subprocess.Popen(
            [self._python, "-m", "_reprokit.agent.serve.forkserver", spec],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environ,
            start_new_session=True,
        )
        ready: ServerReady = from_json(ServerReady, self._receive(START_TIMEOUT_S))
        if not ready.ready or ready.threads != 1:
            self.close()
            raise ServerLost(
                f"it could not start: it has {ready.threads} threads; {self._last_log_line()}"
            )
        compiler_cache.keep_cache(self._cache, kept)

    def _run(self, request: ProbeRequest, folder: Path, limits: ProbeLimits) -> RunOutcome:
        started = time.time()
        self._send(request)
        pid = from_json(ProbeStarted, self._receive(START_TIMEOUT_S, request.id)).pid
        clock = _Clock(pid)
        end, stacks, message = "ended", HangStacks(), {}
        try:
            while not (message := self._poll(POLL_S, request.id)):
                interrupts.raise_if_interrupted()
                clock.update()
                if clock.served_s >= limits.deadline_s:
                    end = "deadline"
                    if limits.wants_stacks:
                        stacks = _dump(folder, pid)
                    break
        finally:
            if not message:
                # the server has not reaped the child, so no other process has its pid
                process_tree.kill_processes(pid, process_tree.family_of(pid))
        if not message:
            message = self._receive(REAP_TIMEOUT_S, request.id)
        ended: ProbeEnded = from_json(ProbeEnded, message)
        self.cpu_s += ended.cpu_s
        self._probes_cpu_s += ended.cpu_s
        return RunOutcome(
            exit_status=ended.status if end == "ended" else None,
            is_timed_out=end == "deadline",
            is_stalled=False,
            is_interrupted=False,
            quiet_s=limits.deadline_s,
            last_progress="",
            seconds=round(time.time() - started, 3),
            cpu_s=ended.cpu_s,
            cpu_by_pid={},
            peak_rss_bytes=ended.peak_rss_bytes,
            started=started,
            ended=time.time(),
            main_pid=pid,
            stacks=stacks,
            oom_evidence="",
            watch_cpu_s=0.0,
            last_output=0.0,
            missing=(),
        )

    def _send(self, request: ProbeRequest) -> None:
        assert self._child is not None and self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(to_json(request)).encode() + b"\n")
            self._child.stdin.flush()
        except OSError as problem:
            raise self._lost() from problem

    def _receive(self, timeout_s: float, number: int | None = None) -> dict[str, Any]:
        """Return the next message about probe ``number``. Raises ServerLost if the server ends or
        sends none in time.
        """
        end = time.monotonic() + timeout_s
        while not (message := self._poll(0.5, number)):
            if time.monotonic() > end:
                raise self._lost()
        return message

    def _poll(self, wait_s: float, number: int | None = None) -> dict[str, Any]:
        """Return a message about probe ``number`` that arrives within ``wait_s``, or an empty
        object.
        """
        assert self._child is not None and self._child.stdout is not None
        if b"\n" not in self._rest:
            if not select.select([self._child.stdout], [], [], wait_s)[0]:
                return {}
            data = os.read(self._child.stdout.fileno(), 1 << 16)
            if not data:
                raise self._lost()
            self._rest += data
            if b"\n" not in self._rest:
                return {}
        line, _, self._rest = self._rest.partition(b"\n")
        value = json.loads(line)
        # a late message about a probe that was interrupted is dropped
        return value if isinstance(value, dict) and value.get("id") == number else {}

    def _lost(self) -> ServerLost:
        line = self._last_log_line()
        self.close()
        return ServerLost(f"the probe server ended: {line}")

    def _last_log_line(self) -> str:
        rows = files.read_tail(self.folder / "server.txt", 2_000).strip().splitlines()
        return cuts.cut_head(rows[-1], 300) if rows else "its log is empty"


class _Clock:
    """Counts seconds, without those in which a process and its descendants wait for a CPU."""

    EVERY_S = 0.1

    def __init__(self, pid: int) -> None:
        self._pid, self.served_s = pid, 0.0
        self._at, self._before = time.monotonic(), (0.0, 0.0)

    def update(self) -> None:
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
        self.served_s += min(passed, 2.0) * process_tree.cpu_share(now_ran, now_waited, passed)


def _dump(folder: Path, pid: int) -> HangStacks:
    dumper = StackDumper(folder)
    try:
        for _ in range(DUMP_ROUNDS):
            dumper.dump_round([pid])
            dumper.dump_by_signal([pid], dumper.number)
            time.sleep(ROUND_GAP_S)
        return HangStacks(tuple(dumper.dumps), Evidence(), dumper.describe_problems())
    finally:
        dumper.close()
