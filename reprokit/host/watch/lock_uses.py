"""Find the locks that threads hold and wait for, from their frames and the source of the program.

Limits keep the time of a look small. A pool has hundreds of threads, but few different lines.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprokit.core.judge.hangs import source_locks
from reprokit.core.judge.hangs.source_locks import NamedLock
from reprokit.core.judge.stacks import recent_dumps
from reprokit.core.judge.stacks.frames import normalise_file
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.process_state import LockName, LockUse
from reprokit.host.system import files, host_log

MAX_SOURCE_BYTES = 1 << 20
MAX_FILES, MAX_LINES = 60, 400
MAX_NAME_CHARS = 100
_SHARED = "/multiprocessing/synchronize.py"
_MACHINERY = ("/threading.py", "/asyncio/locks.py", "<frozen importlib._bootstrap>", _SHARED)
"""Files whose frames are inside the acquisition of a lock."""
_SKIPPED = ("<stdlib>", "<agent>", "<frozen>", "<generated>", "torch/", "triton/")
"""Files whose locks are not those of the program."""
Locks = tuple[list[NamedLock], list[NamedLock]]


@dataclass
class LockFinder:
    """Finds the locks of threads. It reads and parses each file of the program once."""

    trees: dict[str, ast.Module | None] = field(default_factory=dict)
    lines: dict[tuple[int, str, int], Locks] = field(default_factory=dict)

    def find_lock_uses(
        self,
        dumps: Sequence[Dump],
        objects: Mapping[tuple[int, str, int, str], int] | None = None,
    ) -> tuple[LockUse, ...]:
        """Return the locks of each thread whose innermost line is the same in all ``dumps``.

        A line that acquires several locks gives one row for each of them that may be waited for.
        ``objects`` are numbers of the locks that are known: of a thread, a file, a line and an
        expression.
        """

        def known(lock: NamedLock, frame: Frame) -> LockName:
            number = (objects or {}).get((tid, frame.file, frame.line, lock.name))
            identity = lock.identity if number is None else f"object {number}"
            return LockName(lock.name[:MAX_NAME_CHARS], identity)

        uses: list[LockUse] = []
        rounds: dict[tuple[int, int], list[ThreadStack]] = {}
        for dump in dumps:
            for thread in dump.threads:
                if thread.tid and thread.frames:
                    rounds.setdefault((dump.pid, thread.tid), []).append(thread)
        for (pid, tid), stacks in rounds.items():
            frames = stacks[-1].frames
            if any(stack.frames[0] != frames[0] for stack in stacks):
                continue
            own = [frame for frame in frames if not frame.file.endswith(_MACHINERY)]
            held = [known(lock, frame) for frame in own for lock in self._locks_at(pid, frame)[0]]
            waited = self._locks_at(pid, own[0])[1] if own else []
            acquired = [known(lock, own[0]) for lock in waited]
            place = recent_dumps.stack_place(own)
            is_shared = frames[0].file.endswith(_SHARED)
            for number, lock in enumerate(acquired):
                holds = (*held, *acquired[:number])
                waits = (lock.identity, lock.name)
                uses.append(LockUse(pid, tid, stacks[-1].thread, place, *waits, holds, is_shared))
            if held and not acquired:
                uses.append(LockUse(pid, tid, stacks[-1].thread, place, holds=tuple(held)))
        return tuple(uses)

    def _locks_at(self, pid: int, frame: Frame) -> Locks:
        """Return the locks that the line of a frame holds, and those that it acquires."""
        key = pid, frame.file, frame.line
        if key not in self.lines:
            is_skipped = normalise_file(frame.file).startswith(_SKIPPED)
            if len(self.lines) >= MAX_LINES or is_skipped:
                return [], []
            tree = self._tree_of(pid, frame.file)
            self.lines[key] = ([], [])
            if tree is not None:
                with host_log.suppress(RecursionError, ValueError):
                    self.lines[key] = source_locks.locks_of_line(
                        tree, Path(frame.file).stem, frame.line
                    )
        return self.lines[key]

    def _tree_of(self, pid: int, file: str) -> ast.Module | None:
        if file not in self.trees:
            self.trees[file] = None
            if len(self.trees) <= MAX_FILES:
                path = Path(f"/proc/{pid}/cwd", file)  # a relative path is that of the program
                with host_log.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    self.trees[file] = ast.parse(files.read_text(path, MAX_SOURCE_BYTES))
        return self.trees[file]
