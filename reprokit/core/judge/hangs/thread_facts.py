"""The facts of one thread for the rules of ``hang_causes.json``: its state, its stack, its use of
the CPU, what it waits for.
"""

from __future__ import annotations

import itertools
import json
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprokit.core.judge.hangs import wait_kinds
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import only_recent, stack_place, stacks_of, threads_of
from reprokit.core.records.dumps import Frame, ThreadStack
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import BUSY_SHARE, PYTHON_MARK, ProcessState, ThreadState

TABLE: dict[str, Any] = json.loads(pkgutil.get_data(__package__, "hang_causes.json") or b"{}")

MIN_ACTIVE_SHARE = 0.1
"""A thread that wants more than this share of a CPU is not idle."""
MAX_GIL_AGE_S = 1.5
"""The heartbeat thread gets the GIL four times a second; a loaded machine may delay it."""
MIN_GROWTH_BYTES = 60 << 20
LARGE_GROWTH_BYTES = 150 << 20
MIN_QUARTER_BYTES = 4 << 20
MIN_HISTORY_S = 8.0
MIN_HISTORY_CPU_S = 4.0
"""The memory of a healthy program grows at its start too, so shorter growth is not evidence."""


@dataclass
class ThreadFacts:
    """The facts of one thread."""

    process: ProcessState
    thread: ThreadState
    frames: tuple[Frame, ...]
    """Normalised, innermost first."""
    raw: tuple[Frame, ...]
    """The same frames with the files as the tool reported them, for people."""
    states: str
    busy: bool | None
    gil: str
    owned: bool | None
    moved: bool
    growing: bool
    endless: bool
    line: str
    in_native_call: bool
    """Its innermost line acquires no lock of Python."""
    team: bool
    """Native threads of the process use a CPU: an OpenMP team, or the thread pool of a library."""

    @property
    def top(self) -> str:
        """The position of the thread, for a sentence, and the user's line that led there if no
        compiler is on the stack.
        """
        if wait_kinds.is_compiling(self.raw):
            return stack_place(self.raw)
        return wait_kinds.called_place(self.raw)


def is_growing(memory: Sequence[tuple[float, int, float]]) -> bool:
    """Return whether resident memory grew in every quarter of a sufficiently long history."""
    if len(memory) < 5:
        return False
    quarters = [memory[i * (len(memory) - 1) // 4][1] for i in range(5)]
    steps = [b - a for a, b in itertools.pairwise(quarters)]
    total = quarters[-1] - quarters[0]
    spans = memory[-1][0] - memory[0][0], memory[-1][2] - memory[0][2]
    is_long = spans[0] >= MIN_HISTORY_S or spans[1] >= MIN_HISTORY_CPU_S
    is_long |= spans[0] >= MIN_HISTORY_S / 2 and total >= LARGE_GROWTH_BYTES
    is_steady = min(steps) > MIN_QUARTER_BYTES and steps[-1] > 0.3 * total / 4
    return is_long and is_steady and total > MIN_GROWTH_BYTES


def facts_of_thread(seen: Observation, process: ProcessState, thread: ThreadState) -> ThreadFacts:
    """Gather the facts of one thread from the evidence and the dumps."""
    seen = only_recent(seen)
    raw_stacks = stacks_of(seen, process.pid, thread.tid)
    stacks = [fr.normalise_frames(frames) for frames in raw_stacks]
    raw = raw_stacks[-1] if raw_stacks else ()
    is_main = thread.tid == process.pid
    dumps = threads_of(seen, process.pid)
    pythons = {t.tid for threads in dumps for t in threads} | {thread.tid}
    has_owner = any(t.tid for threads in dumps for t in threads)
    owned = (
        any(t.owns_gil and t.tid == thread.tid for threads in dumps for t in threads)
        if has_owner
        else None
    )
    age = process.gil_age_s
    states = process.states if process.is_stopped else thread.states or process.states
    lines = seen.evidence.generated_lines or {}
    is_working = (process.pid, thread.tid) == (seen.main_pid, seen.working_tid or seen.main_pid)
    return ThreadFacts(
        process=process,
        thread=thread,
        frames=stacks[-1] if stacks else (),
        raw=raw,
        states=states,
        busy=None if thread.want is None else thread.want > BUSY_SHARE,
        gil="" if age is None else "stale" if age > MAX_GIL_AGE_S else "fresh",
        owned=owned,
        moved=any(a != b for a, b in itertools.pairwise(stacks)),
        growing=(is_main or is_working) and is_growing(process.memory),
        endless=is_working and bool(seen.endless_line),
        in_native_call=bool(raw) and f"{raw[0].file}:{raw[0].line}" in seen.evidence.native_calls,
        team=sum(t.want or 0.0 for t in process.threads if t.tid not in pythons) > BUSY_SHARE,
        line=next((lines[key] for f in raw if (key := f"{f.file}:{f.line}") in lines), ""),
    )


def is_service(thread: ThreadStack) -> bool:
    """Return whether a thread only serves others: the agent's heartbeat, idle pool workers,
    monitors.
    """
    frames = [
        f
        for f in fr.normalise_frames(thread.frames)
        if not f.file.startswith(("<stdlib>/threading", "<frozen>"))
    ]
    for rule in TABLE["service"]:
        for frame in frames[:1] if rule.get("innermost") else frames:
            if _is_frame(rule, frame):
                return True
    return not thread.frames


def _is_frame(rule: Mapping[str, str], frame: Frame) -> bool:
    name = frame.function.rsplit(".", 1)[-1]
    return bool(re.fullmatch(rule["file"], frame.file) and re.fullmatch(rule["function"], name))


def is_gpu_wait(frames: Sequence[Frame]) -> bool:
    """Return whether the innermost of these normalised frames synchronise with a GPU."""
    wanted = [r["when"].get("frame") for r in TABLE["rules"] if r["cause"] == "gpu-wait"]
    return any(_is_frame(want, f) for want in wanted if want for f in frames[: want["within"]])


_WAITS_FOR_GIL = re.compile(r"0x[0-9a-f]+|pthread_cond_timedwait|take_gil|PyEval_\w+|_PyEval_\w+")


def _is_python_code(native: tuple[str, ...]) -> bool:
    """Return whether a thread runs Python code: the only native frames above are a wait for the
    GIL.
    """
    return native[-1:] == (PYTHON_MARK,) and all(
        _WAITS_FOR_GIL.fullmatch(name) for name in native[:-1]
    )


def rule_holds(when: Mapping[str, Any], facts: ThreadFacts) -> bool:
    """Return whether all conditions of a rule hold; the table explains them."""
    native = facts.thread.native
    checks: dict[str, Callable[[Any], bool]] = {
        "states": lambda want: bool(re.fullmatch(want, facts.states)),
        "busy": lambda want: facts.busy is want or (want is False and facts.busy is None),
        "gil": lambda want: facts.gil == want,
        "owned": lambda want: facts.owned is want,
        "moved": lambda want: facts.moved is want,
        "growing": lambda want: facts.growing is want,
        "endless": lambda want: facts.endless is want,
        "syscall": lambda want: bool(re.fullmatch(want, facts.thread.syscall)),
        "native": lambda want: any(re.search(want, name) for name in native),
        "no_native": lambda want: (
            native not in ((), (PYTHON_MARK,)) and not any(re.search(want, n) for n in native)
        ),
        "in_python": lambda want: (
            (_is_python_code(native) and (facts.thread.want or 0.0) > MIN_ACTIVE_SHARE) is want
        ),
        "shares": lambda want: (
            (
                (facts.thread.want or 0.0) > MIN_ACTIVE_SHARE
                and (facts.process.want or 0.0) > BUSY_SHARE
            )
            is want
        ),
        "team": lambda want: facts.team is want,
        "native_call": lambda want: facts.in_native_call is want,
        "line": lambda want: bool(re.search(want, facts.line)),
        "frame": lambda want: any(_is_frame(want, f) for f in facts.frames[: want["within"]]),
    }
    return all(checks[name](want) for name, want in when.items())


def growth_per_s(memory: Sequence[tuple[float, int, float]]) -> float:
    """Return the growth of memory in bytes per second over the whole history."""
    span = memory[-1][0] - memory[0][0] if memory else 0.0
    return (memory[-1][1] - memory[0][1]) / span if span > 0 else 0.0
