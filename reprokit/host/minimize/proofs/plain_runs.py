"""Run a program as any user would: in fresh processes, without reprokit on their path."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge.stacks import frames, python_traceback
from reprokit.core.records.dumps import Link
from reprokit.core.shared import without_compile
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.host.minimize.proofs import stand_alone
from reprokit.host.probe import isolated_runs
from reprokit.host.probe.fresh_process import eager_program
from reprokit.host.run import launch, run_directory
from reprokit.host.system import (
    compiler_cache,
    deletion,
    files,
    guardian_client,
    interrupts,
    process_tree,
)

SIMULATED = frozenset({launch.CODEGEN, launch.SIMULATION})
"""The parts of the agent that a program needs on a simulated GPU."""
MIN_EAGER_S = 60.0
"""The least time for a run without torch.compile."""
POLL_S = 0.05


@dataclass(frozen=True)
class ProgramEnd:
    """How a plain process ended."""

    status: int | None
    """The exit status; None when the process had to be killed."""
    link: Link | None
    seconds: float
    traceback: str = ""
    """As in :class:`Proof`."""


@dataclass(frozen=True)
class PlainRuns:
    """Runs of a file as any user would run it.

    Each process has its own process group, which is killed at the end. It runs in the
    folder of the file, and PYTHONPATH has only the folders that belong to the interpreter. The
    caches and the stderr of the runs are in ``folder``. Where a ``gpu`` is simulated, the agent is
    on the path.
    """

    python: str
    file: Path
    folder: Path
    gpu: Mapping[str, Any] | None
    isolation: Isolation | None = None

    def run(
        self,
        count: int,
        limit_s: float,
        at_once: int,
        has_eager: bool,
        last: Mapping[str, str] | None = None,
    ) -> tuple[list[ProgramEnd], ProgramEnd | None]:
        """Run the file ``count`` times, and once without torch.compile if ``has_eager``.

        At most ``at_once`` processes run at the same time. Each may take ``limit_s``, or a minute
        without torch.compile. The last compiled run gets the environment variables ``last``. Return
        how they ended.
        """
        waiting = [(number, limit_s, False) for number in range(count)]
        if has_eager:
            waiting.append((count, max(MIN_EAGER_S, limit_s), True))
        running: list[tuple[_Plain, float]] = []
        endings: dict[int, ProgramEnd] = {}
        try:
            while waiting or running:
                while waiting and len(running) < max(at_once, 1):
                    number, seconds, is_eager = waiting.pop(0)
                    with interrupts.blocked():  # each process that starts is ended
                        more = (last or {}) if number == count - 1 else {}
                        one = _Plain(self, number, is_eager, more)
                        running.append((one, time.monotonic() + seconds))
                interrupts.raise_if_interrupted()
                for row in [r for r in running if r[0].has_ended() or time.monotonic() > r[1]]:
                    with interrupts.blocked():
                        running.remove(row)
                        endings[row[0].number] = row[0].end()
                if running:
                    time.sleep(POLL_S)
        finally:
            with interrupts.blocked(), contextlib.ExitStack() as stack:
                for one, _ in running:
                    stack.callback(one.end)  # each of them, also if one raises
        return [endings[number] for number in range(count)], endings.get(count)


class _Plain:
    """One process that runs a file."""

    def __init__(
        self, runs: PlainRuns, number: int, is_eager: bool, variables: Mapping[str, str]
    ) -> None:
        self.number = number
        python, file, folder, gpu = runs.python, runs.file, runs.folder, runs.gpu
        self._run_id, self._seconds = uuid.uuid4().hex, 0.0
        self._cache, self._stderr = folder / f"cache-{number}", folder / f"stderr-{number}.txt"
        environ = stand_alone.plain_environment(launch.environment_without_reprokit())
        compiler_cache.copy_cache(compiler_cache.kept_cache_folder(python), self._cache)
        cache = compiler_cache.plain_path(self._cache)
        environ.update(
            {"TORCHINDUCTOR_CACHE_DIR": str(cache), run_names.RUN_ID_VARIABLE: self._run_id}
        )
        environ.update(without_compile.VARIABLES if is_eager else variables)
        self._stack = contextlib.ExitStack()
        if gpu is not None:
            run_path = folder / f"simulated-{number}"
            run_directory.make_folders(run_path)
            self._stack.callback(deletion.delete_path, run_path, inside=folder)
            agent = self._stack.enter_context(launch.copied_agent(run_path, SIMULATED))
            path = os.pathsep.join([str(agent), *filter(None, [environ.get("PYTHONPATH")])])
            environ.update(
                REPROKIT_RUN_DIR=str(run_path), PYTHONPATH=path, **launch.simulation_variables(gpu)
            )
        isolation = isolated_runs.alone(runs.isolation, file.parent)
        environ |= isolated_runs.variables_of(isolation)
        words = ["-c", eager_program(files.read_text(file))] if is_eager else []
        self._guardian = guardian_client.watch_run_id(self._run_id, (self._cache,))
        self._began = time.monotonic()
        with self._stderr.open("wb") as stderr:
            self._child = subprocess.Popen(
                isolated_runs.isolated_command([python, *words, str(file)], isolation, folder),
                env=environ,
                cwd=file.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Return True when the process ended by itself; note its time at the first such call."""
        if not self._seconds and process_tree.has_ended(self._child.pid):
            self._seconds = time.monotonic() - self._began
        return self._seconds > 0

    def end(self) -> ProgramEnd:
        """Kill all that is left of the process, and return how it ended."""
        is_over = self.has_ended()
        process_tree.kill_process_tree(self._child.pid, self._run_id)
        compiler_cache.delete_partial_headers()
        status = self._child.wait()
        deletion.delete_path(self._cache, inside=self._cache.parent)
        self._stack.close()
        if self._guardian is not None:
            self._guardian.dismiss()
        seconds = round(self._seconds or time.monotonic() - self._began, 2)
        text = files.read_tail(self._stderr, 64_000)
        traceback = python_traceback.shorten_traceback(text, run_names.REPRO_FILE)
        link = frames.parse_traceback(text)
        return ProgramEnd(status if is_over else None, link, seconds, traceback)
