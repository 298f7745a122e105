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
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.reduce import measured_program
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
from reprokit.host.probe import isolated_runs
from reprokit.host.probe.candidate import ProbeLimits
from reprokit.host.probe.connection import ServerConnection
from reprokit.host.probe.probe_watch import ServedClock, dump_stacks
from reprokit.host.request import run_request
from reprokit.host.run import launch, run_directory, stack_sources
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
from reprokit.host.system.child_commands import agent_command
from reprokit.host.watch.hang_evidence import HangStacks

START_TIMEOUT_S = 240.0
POLL_S = 0.02
MAX_MEMORY_SHARE = 0.7
"""The share of the free memory that one probe may use."""
MAX_FILE_BYTES = 1 << 30
REAP_TIMEOUT_S = 20.0


class ServerLost(Exception):
    """The server ended; the message has the last line of its log."""


class ProbeServer:
    """A process that has imported torch and forks a child for each probe.

    It starts with the first probe, and again after :class:`ServerLost`. Several threads may run
    probes at once.
    """

    def __init__(
        self,
        folder: Path,
        python: str,
        depth: str,
        gpu: Mapping[str, Any] | None = None,
        hash_seed: str = "",
        imports: Sequence[str] = (),
    ) -> None:
        """``folder`` has the run directories of the probes; ``gpu`` is simulated in all of them.

        A program that starts itself again for its ``hash_seed`` does not do so in a child of a
        server that has it. The server executes ``imports``, unless one of them starts a thread.
        """
        self.folder, self._python, self._depth, self._gpu = folder, python, depth, gpu
        self._hash_seed, self._imports = hash_seed, list(imports)
        self._run_id = uuid.uuid4().hex
        self._stack = contextlib.ExitStack()
        self._connection: ServerConnection | None = None
        self._lock = threading.RLock()
        self._is_closed = False
        self._number = 0
        self.at_once = 1
        """The number of probes that the user of the server may run at once."""
        self.cpu_s = 0.0
        """CPU seconds of all probes and starts of the server."""
        self.waited_s = 0.0
        """Seconds in which the running probes waited for a CPU."""
        self._running = 0
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
        results: Path | None = None,
    ) -> tuple[RunOutcome, Path]:
        """Run a program in a forked child. Return the outcome and the run directory, which the
        caller deletes.

        In a ``role``, the program writes its results to ``results``, where the next role compares
        them; by default ``RESULTS_FOLDER`` of the server.

        Raises:
            ServerLost: the server has ended.
        """
        if limits.measures and not is_eager:
            text = measured_program.with_once(text, limits.measures) or text
        probe = self._request(limits, is_eager, role, overrides, results)
        folder = Path(probe.folder)
        file = files.write_atomically(folder / run_names.REPRO_FILE, text)
        probe = dataclasses.replace(probe, file=str(file))
        return self._run_with_cache(probe, limits), folder

    def run_target(
        self,
        request: run_request.Request,
        limits: ProbeLimits,
        is_eager: bool = False,
        role: str = "",
        overrides: Mapping[str, Any] | None = None,
        results: Path | None = None,
    ) -> tuple[RunOutcome, Path]:
        """Run a factory target in a forked child, as :meth:`run_program` does."""
        probe = self._request(limits, is_eager, role, overrides, results)
        unmeasured = dataclasses.replace(request, compares_memory=False)
        probe = dataclasses.replace(probe, target=run_request.factory_spec(unmeasured))
        return self._run_with_cache(probe, limits), Path(probe.folder)

    def _request(
        self,
        limits: ProbeLimits,
        is_eager: bool,
        role: str,
        overrides: Mapping[str, Any] | None,
        results: Path | None,
    ) -> ProbeRequest:
        with self._lock:
            if self._is_closed:
                raise ServerLost("the process for trial runs was closed")
            if self._connection is None:
                self._start()
            self._number += 1
            number = self._number
        folder = self.folder / f"probe-{number:04d}"
        deletion.delete_path(folder, inside=self.folder)
        run_directory.make_folders(folder)
        results = results or self.folder / RESULTS_FOLDER
        if role:
            results.mkdir(exist_ok=True)
        return ProbeRequest(
            id=number,
            folder=str(folder),
            cache=str(compiler_cache.plain_path(folder / run_names.CACHE_FOLDER)),
            is_eager=is_eager,
            overrides=dict(overrides or {}),
            role=role,
            results=str(results),
            measures=limits.measures,
            is_simulated=limits.is_simulated,
            stop=limits.stop,
            is_backward=limits.is_backward,
            checks_syntax=limits.checks_syntax,
            memory_bytes=int(psutil.virtual_memory().available * MAX_MEMORY_SHARE),
            file_bytes=MAX_FILE_BYTES,
            isolation=isolated_runs.with_own(
                limits.isolation, folder, *([results] if role else [])
            ),
            openblas_threads=os.environ.get("OPENBLAS_NUM_THREADS"),
        )

    def _run_with_cache(self, request: ProbeRequest, limits: ProbeLimits) -> RunOutcome:
        folder = Path(request.folder)
        compiler_cache.link_cache(self._cache, folder / run_names.CACHE_FOLDER)
        try:
            return self._run(request, folder, limits)
        except BaseException:  # the caller does not know the folder
            deletion.delete_path(folder, inside=self.folder)
            raise
        finally:
            stack_sources.keep_lines(folder)
            deletion.delete_path(folder / run_names.CACHE_FOLDER, inside=self.folder)
            compiler_cache.delete_partial_headers()

    def close(self) -> None:
        """End the server and its children for good, and delete the results of their programs."""
        with interrupts.blocked(), self._lock:
            self._is_closed = True
            self._disconnect()
            for path in self.folder.glob(f"{RESULTS_FOLDER}*"):
                deletion.delete_path(path, inside=self.folder)

    def _disconnect(self) -> None:
        with interrupts.blocked(), self._lock:
            connection, self._connection = self._connection, None
            self._end(connection)

    def _end(self, connection: ServerConnection | None) -> None:
        if connection is not None:
            child = connection.child
            process_tree.kill_process_tree(child.pid, self._run_id)
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
            # the usage of its children was added before
            self.cpu_s += max(used.ru_utime + used.ru_stime - connection.probes_cpu_s, 0.0)
        self._stack.close()

    def _start(self) -> None:
        self._stack = contextlib.ExitStack()
        self._run_id = uuid.uuid4().hex
        self.starts += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        if guardian := guardian_client.watch_run_id(self._run_id, (self.folder,)):
            self._stack.callback(guardian.dismiss)
        agent = self._stack.enter_context(launch.copied_agent(self.folder, frozenset(launch.PARTS)))
        environ = launch.environment_without_reprokit()
        environ |= {
            "PYTHONPATH": launch.agent_python_path(agent),
            run_names.RUN_ID_VARIABLE: self._run_id,
            run_names.WATCHDOG_VARIABLE: str(os.getpid()),
            # threads of numpy in the server prevent the fork; the children have the user's number
            "OPENBLAS_NUM_THREADS": "1",
            **launch.simulation_variables(self._gpu),
        }
        environ.pop("TORCH_TRACE", None)
        if self._hash_seed:
            environ["PYTHONHASHSEED"] = self._hash_seed
        self._cache = self.folder / "warm"
        deletion.delete_path(self._cache, inside=self.folder)
        compiler_cache.delete_partial_headers()
        kept = compiler_cache.kept_cache_folder(self._python)
        compiler_cache.copy_cache(kept, self._cache)
        cache = str(compiler_cache.plain_path(self._cache))
        spec = json.dumps(
            to_json(ServerSpec(depth=self._depth, cache=cache, imports=self._imports))
        )
        log = self._stack.enter_context((self.folder / "server.txt").open("wb"))
        child = subprocess.Popen(
            agent_command(self._python, agent, "_reprokit.agent.serve.forkserver", spec),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environ,
            start_new_session=True,
        )
        self._connection = ServerConnection(child)
        imports, self._imports = self._imports, []  # one of them may end the process
        message = self._receive(self._connection, START_TIMEOUT_S, None)
        ready: ServerReady = from_json(ServerReady, message)
        if not ready.ready:
            self._disconnect()
            if imports:  # or have started a thread
                self._start()
                return
        self._imports = imports
        if not ready.ready:
            raise ServerLost(
                "the process for trial runs could not start, because it has"
                f" {ready.threads} threads: {self._last_log_line()}"
            )
        compiler_cache.keep_cache(self._cache, kept)

    def _run(self, request: ProbeRequest, folder: Path, limits: ProbeLimits) -> RunOutcome:
        started = time.time()
        connection = self._connection
        if connection is None:
            raise ServerLost("the process for trial runs was closed")
        try:
            connection.send(request)
        except OSError as problem:
            raise self._lost(connection) from problem
        message = self._receive(connection, START_TIMEOUT_S, request.id)
        pid = from_json(ProbeStarted, message).pid
        clock = ServedClock(pid)
        with self._lock:
            self._running += 1
        end, stacks, message = "ended", HangStacks(), {}
        try:
            while not (message := self._poll(connection, POLL_S, request.id)):
                interrupts.raise_if_interrupted()
                clock.update()
                if clock.served_s >= limits.deadline_s:
                    end = "deadline"
                    if limits.wants_stacks:
                        stacks = dump_stacks(folder, pid)
                    break
        finally:
            with self._lock:  # also if the server is lost, because later probes count the running
                self.waited_s += clock.waited_s / self._running
                self._running -= 1
            if not message:
                # the server has not reaped the child, so no other process has its pid
                process_tree.kill_processes(pid, process_tree.family_of(pid))
        if not message:
            message = self._receive(connection, REAP_TIMEOUT_S, request.id)
        ended: ProbeEnded = from_json(ProbeEnded, message)
        with self._lock:
            self.cpu_s += ended.cpu_s
            connection.probes_cpu_s += ended.cpu_s
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

    def _receive(
        self, connection: ServerConnection, timeout_s: float, number: int | None
    ) -> dict[str, Any]:
        """Return the next message about probe ``number``. Raises ServerLost if the server ends or
        sends none in time.
        """
        end = time.monotonic() + timeout_s
        while not (message := self._poll(connection, 0.1, number)):
            interrupts.raise_if_interrupted()
            if time.monotonic() > end:
                raise self._lost(connection)
        return message

    def _poll(
        self, connection: ServerConnection, wait_s: float, number: int | None
    ) -> dict[str, Any]:
        try:
            return connection.poll(wait_s, number)
        except (EOFError, OSError, ValueError) as problem:
            raise self._lost(connection) from problem

    def _lost(self, connection: ServerConnection) -> ServerLost:
        """Close the connection, unless a different thread did, and return the exception."""
        line = self._last_log_line()
        with self._lock:
            if self._connection is connection:
                self._disconnect()
        return ServerLost(f"the process for trial runs ended: {line}")

    def _last_log_line(self) -> str:
        rows = files.read_tail(self.folder / "server.txt", 2_000).strip().splitlines()
        return cuts.cut_head(rows[-1], 300) if rows else "its log is empty"
