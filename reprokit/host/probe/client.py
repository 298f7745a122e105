"""The client of the probe server: start it, have it run a program in a forked child, watch that
child, end it.

Each probe gets a run directory of its own and gives the same :class:`Outcome` as a run of
``host/run/supervise.py``, so that both are judged alike. Deadlines are counted in served seconds:
time in which the child had the processor it wanted, so that a busy machine changes no answer.
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
from reprokit.host.probe.candidate import RESULTS, ProbeLimits
from reprokit.host.request import run_request
from reprokit.host.run import launch, run_directory
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

START_DEADLINE_S = 240.0
ROUNDS = 3
GAP_S = 0.15
POLL_S = 0.02
MEMORY_SHARE = 0.7
"""Of the memory that is free, for one probe."""
FILE_BYTES = 1 << 30
REAP_S = 20.0


class ServerLost(Exception):
    """The server ended; the message says what it said last."""


class ProbeServer:
    """One warm process in ``folder``; start it again after :class:`ServerLost`."""

    def __init__(
        self, folder: Path, python: str, depth: str, gpu: Mapping[str, Any] | None = None
    ) -> None:
        """``gpu`` is simulated in all that it runs."""
        self.folder, self._python, self._depth, self._gpu = folder, python, depth, gpu
        self._run_id = uuid.uuid4().hex
        self._stack = contextlib.ExitStack()
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._number = 0
        self.cpu_s = 0.0
        """Processor seconds of probes and warm-ups so far."""
        self._told_s = 0.0
        self.starts = 0

    def __enter__(self) -> ProbeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        text: str,
        limits: ProbeLimits,
        is_eager: bool = False,
        role: str = "",
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[RunOutcome, Path]:
        """Run a program in a forked child; gives how it ended and its run directory, which is the
        caller's to delete.

        In a ``role`` it leaves its results in the folder ``RESULTS`` of the server's, for the next
        role to compare.
        """
        folder = self._make_folder()
        file = files.write_whole(folder / run_names.REPRO_FILE, text)
        asked = self._request(folder, limits, is_eager, role, overrides)
        return self._asked(dataclasses.replace(asked, file=str(file)), folder, limits), folder

    def run_target(
        self,
        request: run_request.Request,
        limits: ProbeLimits,
        is_eager: bool = False,
        role: str = "",
        overrides: Mapping[str, Any] | None = None,
    ) -> tuple[RunOutcome, Path]:
        """Run a factory target in a forked child, with other settings than its own; else as
        :meth:`run`.
        """
        folder = self._make_folder()
        asked = self._request(folder, limits, is_eager, role, overrides)
        return (
            self._asked(
                dataclasses.replace(asked, target=run_request.factory_spec(request)), folder, limits
            ),
            folder,
        )

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
            results=str(self.folder / RESULTS),
            stop=limits.stop,
            is_backward=limits.is_backward,
            memory_bytes=int(psutil.virtual_memory().available * MEMORY_SHARE),
            file_bytes=FILE_BYTES,
            openblas_threads=os.environ.get("OPENBLAS_NUM_THREADS"),
        )

    def _make_folder(self) -> Path:
        if self._child is None:
            self._start()
        self._number += 1
        folder = self.folder / f"probe-{self._number:04d}"
        deletion.delete(folder, inside=self.folder)
        run_directory.make_folders(folder)
        return folder

    def _asked(self, asked: ProbeRequest, folder: Path, limits: ProbeLimits) -> RunOutcome:
        compiler_cache.link_cache(self._cache, folder / run_names.CACHE_FOLDER)
        try:
            return self._one(asked, folder, limits)
        finally:
            deletion.delete(folder / run_names.CACHE_FOLDER, inside=self.folder)
            compiler_cache.fix_headers()

    def close(self) -> None:
        """End the server and all that it started."""
        child, self._child = self._child, None
        with interrupts.blocked():
            self._end(child)

    def _end(self, child: subprocess.Popen[bytes] | None) -> None:
        if child is not None:
            process_tree.kill_all(child.pid, self._run_id)
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
            self.cpu_s += max(
                used.ru_utime + used.ru_stime - self._told_s, 0.0
            )  # that of its children was told before
            self._told_s = 0.0
        self._stack.close()

    def _start(self) -> None:
        self._stack = contextlib.ExitStack()
        self._rest = b""
        self._run_id = uuid.uuid4().hex
        self.starts += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        if guardian := guardian_client.watch_run_id(self._run_id, (self.folder,)):
            self._stack.callback(guardian.dismiss)
        agent = self._stack.enter_context(launch.agent_folder(self.folder, frozenset(launch.PARTS)))
        environ = launch.users_environment()
        environ.update(
            PYTHONPATH=launch.python_path(agent), **{run_names.RUN_ID_VARIABLE: self._run_id}
        )
        environ.update(
            REPROKIT_WATCHDOG_PID=str(os.getpid()), **launch.simulation_variables(self._gpu)
        )
        environ.pop("TORCH_TRACE", None)
        environ["OPENBLAS_NUM_THREADS"] = (
            "1"  # numpy's would be threads of the server; its children get the user's own
        )
        self._cache = self.folder / "warm"
        deletion.delete(self._cache, inside=self.folder)
        compiler_cache.fix_headers()
        kept = compiler_cache.kept_cache(self._python)
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
        ready: ServerReady = from_json(ServerReady, self._hear(START_DEADLINE_S))
        if not ready.ready or ready.threads != 1:
            self.close()
            raise ServerLost(
                f"it could not warm up: it has {ready.threads} threads; {self._last_words()}"
            )
        compiler_cache.keep_cache(self._cache, kept)

    def _one(self, asked: ProbeRequest, folder: Path, limits: ProbeLimits) -> RunOutcome:
        started = time.time()
        self._send(asked)
        pid = from_json(ProbeStarted, self._hear(START_DEADLINE_S, asked.id)).pid
        clock = _Clock(pid)
        end, stacks, said = "ended", HangStacks(), {}
        try:
            while not (said := self._heard(POLL_S, asked.id)):
                interrupts.raise_if_interrupted()
                clock.tick()
                if clock.served_s >= limits.deadline_s:
                    end = "deadline"
                    if limits.wants_stacks:
                        stacks = _dump(folder, pid)
                    break
        finally:
            if not said:
                process_tree.end_tree(
                    pid, process_tree.family_of(pid)
                )  # the server reaps it, so its pid stays its own until then
        if not said:
            said = self._hear(REAP_S, asked.id)
        ended: ProbeEnded = from_json(ProbeEnded, said)
        self.cpu_s += ended.cpu_s
        self._told_s += ended.cpu_s
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

    def _send(self, asked: ProbeRequest) -> None:
        assert self._child is not None and self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(to_json(asked)).encode() + b"\n")
            self._child.stdin.flush()
        except OSError as problem:
            raise self._lost() from problem

    def _hear(self, limit_s: float, number: int | None = None) -> dict[str, Any]:
        """The server's next line; raises ServerLost when it ends or says nothing for too long."""
        end = time.monotonic() + limit_s
        while not (said := self._heard(0.5, number)):
            if time.monotonic() > end:
                raise self._lost()
        return said

    def _heard(self, wait_s: float, number: int | None = None) -> dict[str, Any]:
        """A line on probe ``number`` that is there, or that comes within ``wait_s``; empty when
        none does.
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
        # the end of a probe that an interrupt left alone is nobody's answer
        return value if isinstance(value, dict) and value.get("id") == number else {}

    def _lost(self) -> ServerLost:
        words = self._last_words()
        self.close()
        return ServerLost(f"the probe server ended: {words}")

    def _last_words(self) -> str:
        rows = files.read_tail(self.folder / "server.txt", 2_000).strip().splitlines()
        return cuts.cut_head(rows[-1], 300) if rows else "it said nothing"


class _Clock:
    """Seconds in which a process family had the processor that it wanted, or wanted none."""

    EVERY_S = 0.1

    def __init__(self, pid: int) -> None:
        self._pid, self.served_s = pid, 0.0
        self._at, self._before = time.monotonic(), (0.0, 0.0)

    def tick(self) -> None:
        passed = time.monotonic() - self._at
        if passed < self.EVERY_S:
            return
        self._at += passed
        ran = waited = 0.0
        for process in process_tree.family_of(self._pid):
            mine = process_tree.processor_s(process.pid)
            ran, waited = ran + mine[0], waited + mine[1]
        now_ran, now_waited = max(ran - self._before[0], 0.0), max(waited - self._before[1], 0.0)
        self._before = ran, waited
        self.served_s += min(passed, 2.0) * process_tree.processor_share(
            now_ran, now_waited, passed
        )


def _dump(folder: Path, pid: int) -> HangStacks:
    dumper = StackDumper(folder)
    try:
        for _ in range(ROUNDS):
            dumper.round([pid])
            dumper.ask_inside([pid], dumper.number)
            time.sleep(GAP_S)
        return HangStacks(tuple(dumper.dumps), Evidence(), dumper.problems())
    finally:
        dumper.close()
