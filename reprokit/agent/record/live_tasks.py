"""Record the tasks of asyncio in this process, and what each of them waits for.

The host runs this in the main thread of a process that was started without the agent, between two
bytecodes. asyncio is not imported into a process that does not use it, and no task is changed.
"""

from __future__ import annotations

import os
import sys

from ...core.shared.contract import run_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_TASKS, MAX_FRAMES = 1000, 50
CO_OPTIMIZED = 1
"""The flag of code whose variables are not a dictionary that the program uses."""


def record_live_tasks(run_dir: str) -> int:
    """Append the tasks of all event loops of this process to the file of the tasks in the run
    directory, and return their number.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return 0
    rows = [
        {"pid": os.getpid(), "tid": tid, **_describe(task)}
        for tid, loop in _loops(asyncio).items()
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())[:MAX_TASKS]
    ]
    with open(os.path.join(run_dir, run_names.TASKS_FILE), "a") as file:
        # a program without json must not get it
        file.write("".join(f"{row!r}\n" for row in rows))
    return len(rows)


def _loops(asyncio: Any) -> dict[int, Any]:
    """Return the event loops that run, by the native ids of their threads."""
    threading = sys.modules.get("threading")
    # threading.enumerate() takes a lock that the interrupted code may hold
    native = {ident: t.native_id for ident, t in getattr(threading, "_active", {}).copy().items()}
    found: dict[int, Any] = {}
    for ident, innermost in sys._current_frames().items():
        frame = innermost
        while frame is not None:
            code = frame.f_code
            if code.co_name == "run_forever" and code.co_filename.endswith("base_events.py"):
                found[native.get(ident) or 0] = frame.f_locals.get("self")
            frame = frame.f_back  # type: ignore[assignment]
    running = asyncio._get_running_loop()  # a loop in C has no frame
    if running is not None and running not in found.values():
        found[os.getpid()] = running
    return found


def _describe(task: Any) -> dict[str, Any]:
    waited = getattr(task, "_fut_waiter", None)
    children = getattr(waited, "_children", None) or [waited]
    others = [o.get_name() for o in children if hasattr(o, "get_name") and not o.done()]
    frames = list(_frames(task.get_coro()))[::-1][:MAX_FRAMES]
    return {
        "name": task.get_name(),
        "frames": [_place(frame) for frame in frames],
        "locks": [
            (*_place(frame)[:2], name, number) for frame in frames for name, number in _locks(frame)
        ],
        "waits_for": others[:MAX_TASKS],
    }


def _place(frame: Any) -> tuple[str, int, str]:
    code = frame.f_code
    return code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)


def _locks(frame: Any) -> list[tuple[str, int]]:
    """Return the expressions of the locks in the variables of a coroutine, and a number that is
    equal for the same lock.
    """
    values = frame.f_locals
    found = []
    for name, value in list(values.items()):
        attributes = getattr(value, "__dict__", None)
        rows = [(name, value)]
        if isinstance(attributes, dict):
            rows += [(f"{name}.{key}", one) for key, one in list(attributes.items())[:MAX_FRAMES]]
        found += [(row, id(one)) for row, one in rows if type(one).__module__ == "asyncio.locks"]
    # before Python 3.13, the copy of the variables would keep them alive
    if type(values) is dict and frame.f_code.co_flags & CO_OPTIMIZED and sys.gettrace() is None:
        values.clear()
    return found[:MAX_FRAMES]


def _frames(coroutine: Any) -> Iterator[Any]:
    """Yield the frame of each coroutine that waits for the next, outermost first."""
    for _ in range(MAX_FRAMES):
        for prefix in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{prefix}_frame", None)
            if frame is not None:
                yield frame
                inner = "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await"
                coroutine = getattr(coroutine, inner, None)
                break
        else:
            return
