"""Record the tasks of asyncio in this process, and what each of them waits for.

The host runs this in the main thread of a process that was started without the agent, between two
bytecodes. Nothing is imported that the process has not imported, and no task is changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from ...core.shared.contract import run_names

MAX_TASKS, MAX_FRAMES = 1000, 50


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
        file.write("".join(json.dumps(row) + "\n" for row in rows))
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
    return {
        "name": task.get_name(),
        "frames": list(_frames(task.get_coro()))[::-1][:MAX_FRAMES],
        "waits_for": others[:MAX_TASKS],
    }


def _frames(coroutine: Any) -> Iterator[tuple[str, int, str]]:
    """Yield the file, line and function of each coroutine that waits for the next, outermost
    first.
    """
    for _ in range(MAX_FRAMES):
        for prefix in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{prefix}_frame", None)
            if frame is not None:
                code = frame.f_code
                name = getattr(code, "co_qualname", code.co_name)
                yield code.co_filename, frame.f_lineno, name
                inner = "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await"
                coroutine = getattr(coroutine, inner, None)
                break
        else:
            return
