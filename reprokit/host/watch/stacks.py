"""Dump the stacks of processes, from outside (py-spy) and from inside (faulthandler).

Both work while native code holds the GIL. py-spy reads the memory without stopping the process
(``--nonblocking``), so it does not disturb it, and works on stopped and uninterruptible processes
too. faulthandler needs a signal, which ends some system calls early (libc's ``sleep``), so it comes
last: :meth:`StackDumper.dump_by_signal`. Every tool has a timeout.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, Any

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Dump, ThreadStack
from reprokit.core.records.process_state import PYTHON_MARK, describe_exit
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.journal_format import STACKS_SIGNAL
from reprokit.host.system import deletion, files, host_log
from reprokit.host.watch import blocked_on

PY_SPY_TIMEOUT_S = 4.0
NATIVE_TIMEOUT_S = 4.0
MAX_PY_SPY_TRIES = 3
"""py-spy is repeated because the stack may change while it is read."""
FAULTHANDLER_TIMEOUT_S = 1.0
MAX_DUMP_BYTES = 4 << 20
MAX_PROCESSES = 128
"""A node with eight ranks, and some workers of each."""
MAX_ROUNDS_ON_DISK = 120
"""Rounds of dumps on disk; of a longer run, every second of the older rounds is deleted."""
TOO_SLOW = "no result"
MAX_ROUNDS_IN_MEMORY = 12
"""Rounds of dumps in memory, which are judged."""


_NAME = re.compile(r"(?P<number>[0-9]{1,9})-(?P<tool>py-spy|faulthandler)-(?P<pid>[0-9]{1,9})")


class StackDumper:
    """Takes numbered rounds of dumps into ``stacks/<n>-<tool>-<pid>.json|txt``."""

    def __init__(self, run_path: Path) -> None:
        self._folder = run_path / run_names.STACKS_FOLDER
        self._tool = find_py_spy()
        self._pool = ThreadPoolExecutor(max_workers=8)
        self.number = 0
        self.dumps: list[Dump] = []
        self.seconds_to_first = 0.0
        """From the start of a round to its first stack; set to 0 to measure the next round."""
        self._mute: set[int] = set()
        self._slow: set[int] = set()
        self._looks: list[int] = []
        self._left_out = 0
        self.memory_files: dict[int, Path] = {}
        """Where a process that called ``reprokit.watch()`` writes its stacks on a signal."""

    def dump_round(self, pids: Iterable[int]) -> list[Dump]:
        """Dump each process once from outside, without disturbing it."""
        self.number += 1
        self._looks.append(self.number)
        if len(self._looks) > MAX_ROUNDS_ON_DISK:
            self._thin_out()
        every = list(pids)
        chosen = every[:MAX_PROCESSES]
        self._left_out = len(every) - len(chosen)
        number, tool, began = self.number, self._tool, time.monotonic()
        jobs = [
            self._pool.submit(_py_spy, tool, self._folder, number, pid)
            for pid in chosen
            if pid not in self._slow
        ]
        taken = []
        for job in as_completed(jobs):
            dump = job.result()
            taken.append(dump)
            if dump.threads and not self.seconds_to_first:
                self.seconds_to_first = round(time.monotonic() - began, 3)
        # a process without a result would delay every further round by the timeout
        self._slow |= {d.pid for d in taken if TOO_SLOW in d.problem}
        return self._keep(taken)

    def dump_by_signal(self, pids: Iterable[int], number: int) -> list[Dump]:
        """Dump each process once from inside, as a part of round ``number``.

        The signal for it may end a system call that the process waits in. ``pids`` must be in
        ``JournalFollower.can_dump``.
        """
        began = time.monotonic()
        chosen = [pid for pid in list(pids)[:MAX_PROCESSES] if pid not in self._mute]
        taken = list(self._pool.map(lambda pid: self._dump_by_signal(pid, number), chosen))
        if not self.seconds_to_first and any(d.threads for d in taken):
            self.seconds_to_first = round(time.monotonic() - began, 3)
        self._mute |= {d.pid for d in taken if d.problem}
        return self._keep(taken)

    def _dump_by_signal(self, pid: int, number: int) -> Dump:
        try:
            if pid in self.memory_files:
                owner = os.stat(f"/proc/{pid}").st_uid
                file = files.open_memory_file(self.memory_files[pid], owner)
            else:
                file = files.open_regular_file(self._folder / f"faulthandler-{pid}.txt")
            with file:
                return _faulthandler(file, self._folder, number, pid)
        except OSError as problem:
            return Dump(number, "faulthandler", pid, problem=problem.strerror or str(problem))

    def _keep(self, taken: list[Dump]) -> list[Dump]:
        taken.sort(key=lambda d: (d.tool, d.pid))
        # in the order of read_dumps()
        self.dumps = sorted([*self.dumps, *taken], key=lambda d: (d.number, d.tool, d.pid))
        old = self.number - MAX_ROUNDS_IN_MEMORY
        self.dumps = [d for d in self.dumps if d.number > old]
        return taken

    def retry_failed_tools(self) -> None:
        """Try all tools again, even if they were too slow before, perhaps under load."""
        self._mute.clear()
        self._slow.clear()

    def _thin_out(self) -> None:
        """Delete every second of the older rounds, so that a long run does not fill the disk."""
        old = self._looks[: -MAX_ROUNDS_ON_DISK // 2]
        gone = set(old[1::2])
        self._looks = [n for n in self._looks if n not in gone]
        for number in gone:
            for path in self._folder.glob(f"{number}-*"):
                deletion.delete_path(path, inside=self._folder)

    def describe_problems(self) -> tuple[str, ...]:
        """Return which tool could not dump which process, and why."""
        left = f"reprokit reads {MAX_PROCESSES} processes, and left out {self._left_out} more"
        return (left,) * bool(self._left_out) + tuple(
            sorted({f"{d.tool} of process {d.pid}: {d.problem}" for d in self.dumps if d.problem})
        )

    def native_frames(self, pid: int) -> dict[int, tuple[str, ...]]:
        """Return the native functions above Python by thread id, innermost first.

        This stops the process for about 0.2 s.
        """
        if self._tool is None:
            return {}
        command = [self._tool, "dump", "--native", "--json", "--full-filenames", "--pid", str(pid)]
        text, _ = _call(command, NATIVE_TIMEOUT_S)
        try:
            threads = json.loads(text)
            found = {t["os_thread_id"]: _above_python(t["frames"]) for t in threads}
        except (ValueError, KeyError, TypeError) as problem:
            host_log.log_ignored(problem)
            return {}
        with host_log.suppress(OSError):
            files.write_atomically(self._folder / f"{self.number}-py-spy-native-{pid}.json", text)
        return found

    def find_lock_file(self, pid: int) -> str:
        """Return the file that Python code of ``pid`` waits to lock, from its local variables,
        which are not saved.
        """
        if self._tool is None:
            return ""
        command = [
            self._tool,
            "dump",
            "--nonblocking",
            "-" + "l" * 32,  # each shows 128 characters of a local variable, and paths have 4,096
            "--json",
            "--full-filenames",
            "--pid",
            str(pid),
        ]
        text, _ = _call(command, PY_SPY_TIMEOUT_S)
        with host_log.suppress(ValueError, KeyError, TypeError):
            for frame in (f for t in json.loads(text) for f in t["frames"]):
                for local in frame.get("locals") or ():
                    # py-spy writes a text between double quotes, and a single quote in it as \"
                    value = str(local.get("repr") or "")[1:-1].replace('\\"', "'")
                    if (
                        local["name"]
                        in ("lock_filename", "lock_file", "lock_path", "lock_file_path")
                        and "/" in value
                    ):
                        return value
                    if local["name"] == "build_directory" and "cpp_extension" in frame["filename"]:
                        return os.path.join(value, "lock")
        return ""

    def close(self) -> None:
        """Release the threads without waiting: each job has its own timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _above_python(frames: list[dict[str, Any]]) -> tuple[str, ...]:
    inside = itertools.takewhile(
        lambda f: not str(f.get("filename") or "").endswith((".py", ">")), frames
    )
    return (*(str(f["name"]) for f in inside), PYTHON_MARK)


def read_dumps(run_path: Path, max_rounds: int = MAX_ROUNDS_IN_MEMORY) -> list[Dump]:
    """Read the dumps of the last ``max_rounds`` rounds from a run directory."""
    named = []
    for path in (run_path / run_names.STACKS_FOLDER).glob("[0-9]*-*-*"):
        if (words := _NAME.fullmatch(path.stem)) is not None:
            named.append((int(words["number"]), words["tool"], int(words["pid"]), path))
    rounds = sorted({number for number, *_ in named})[-max_rounds:]
    found = []
    for number, tool, pid, path in sorted(named):
        if number in rounds:
            parse = fr.parse_py_spy if tool == "py-spy" else fr.parse_faulthandler
            with host_log.suppress(ValueError):
                found.append(Dump(number, tool, pid, tuple(parse(files.read_text(path), pid))))
    return found


def find_py_spy() -> str | None:
    """Return the path of py-spy: that of ``REPROKIT_PY_SPY``, that of reprokit's environment, or
    that on PATH.
    """
    if named := os.environ.get("REPROKIT_PY_SPY"):
        return named if os.access(named, os.X_OK) else None
    for folder in (os.path.dirname(sys.executable), sysconfig.get_path("scripts")):
        path = os.path.join(folder, "py-spy")
        if os.access(path, os.X_OK):
            return path
    return shutil.which("py-spy")


def _call(command: list[str], timeout_s: float) -> tuple[str, str]:
    """Return the output of the tool, and the first line of its error."""
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"{TOO_SLOW} in {timeout_s:.0f} s"
    except OSError as problem:
        return "", str(problem)
    error = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
    return done.stdout.decode("utf-8", "replace"), error or describe_exit(done.returncode)


def _py_spy(tool: str | None, folder: Path, number: int, pid: int) -> Dump:
    if tool is None:
        return Dump(number, "py-spy", pid, problem="it is not installed with reprokit")
    error = ""
    for attempt in range(1, MAX_PY_SPY_TRIES + 1):
        command = [tool, "dump", "--nonblocking", "--json", "--full-filenames", "--pid", str(pid)]
        text, error = _call(command, PY_SPY_TIMEOUT_S)
        if TOO_SLOW in error:
            break
        with host_log.suppress(ValueError):
            threads = fr.parse_py_spy(text, pid)
            if not any(t.is_main and _is_whole(t) for t in threads) and attempt < MAX_PY_SPY_TRIES:
                continue  # it changed while it was read
            with host_log.suppress(OSError):
                files.write_atomically(folder / f"{number}-py-spy-{pid}.json", text)
            return Dump(number, "py-spy", pid, tuple(threads))
    return Dump(number, "py-spy", pid, problem=cuts.cut_head(error, 300))


def _is_whole(thread: ThreadStack) -> bool:
    """Return whether the stack of a main thread reaches the start of the program."""
    return bool(thread.frames) and thread.frames[-1].function in (
        "<module>",
        "_run_module_as_main",
        "_bootstrap",
    )


def _faulthandler(file: IO[bytes], folder: Path, number: int, pid: int) -> Dump:
    """Send STACKS_SIGNAL, on which faulthandler appends the stacks of all threads to the file.

    Raises OSError if the signal cannot be sent, or if the file cannot be read.
    """
    before = os.fstat(file.fileno()).st_size
    if not blocked_on.catches_signal(pid, STACKS_SIGNAL):
        has_ended = "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
        reason = (
            "the process had ended"
            if has_ended
            else "the process does not handle the signal for a dump"
        )
        return Dump(number, "faulthandler", pid, problem=reason)
    os.kill(pid, STACKS_SIGNAL)
    deadline, size = time.monotonic() + FAULTHANDLER_TIMEOUT_S, before
    while time.monotonic() < deadline:
        time.sleep(0.01)
        now = os.fstat(file.fileno()).st_size
        if now > before and now == size:
            break
        size = now
    file.seek(before)
    text = files.read_at_most(file, MAX_DUMP_BYTES).decode("utf-8", "replace")
    if not text:
        reason = "no result (the process is stopped, or the disk is full)"
        return Dump(number, "faulthandler", pid, problem=reason)
    with host_log.suppress(OSError):
        files.write_atomically(folder / f"{number}-faulthandler-{pid}.txt", text)
    return Dump(number, "faulthandler", pid, tuple(fr.parse_faulthandler(text, pid)))
