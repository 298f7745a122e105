"""Record what each step of a capture costs, in ``steps.jsonl`` of its run directory."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from reprokit.core.shared.contract import run_names
from reprokit.host.system import host_log, process_tree


@contextlib.contextmanager
def recorded(run_path: Path, step: str) -> Iterator[None]:
    """Append the wall-clock and CPU seconds of this block.

    ``own_cpu_s`` is that of reprokit itself. ``children_cpu_s`` is that of the processes that ended
    in this block, with all below them; a server that goes on counts when it ends.
    """
    began, own, children = time.monotonic(), *process_tree.own_cpu_seconds()
    try:
        yield
    finally:
        own_after, children_after = process_tree.own_cpu_seconds()
        row = {
            "step": step,
            "wall_s": round(time.monotonic() - began, 3),
            "own_cpu_s": round(own_after - own, 3),
            "children_cpu_s": round(children_after - children, 3),
        }
        host_log.LOGGER.info("step %s: %.2f s", step, row["wall_s"])
        with host_log.suppress(OSError), (run_path / run_names.STEPS_FILE).open("a") as file:
            file.write(json.dumps(row) + "\n")
