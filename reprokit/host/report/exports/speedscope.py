"""Write the sampled stacks as a file of speedscope, one profile for each thread.

https://www.speedscope.app/file-format-schema.json is the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reprokit import __version__
from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Dump
from reprokit.host.report import flamegraph

SCHEMA_ADDRESS = "https://www.speedscope.app/file-format-schema.json"
MAX_STACK_FRAMES = 400
"""Of a deeper stack, the innermost and the outermost frames are kept."""


def speedscope_file(dumps: Iterable[Dump], names: Mapping[int, str], title: str) -> dict[str, Any]:
    """Return the stacks as JSON, which the caller must redact; empty if there is no stack.

    Each sample has the weight 1, because a dump has no duration.
    """
    frames: dict[tuple[str, str, int], int] = {}
    samples: dict[str, list[list[int]]] = {}
    for dump in flamegraph.one_dump_each(dumps):
        for thread in dump.threads:
            if is_service(thread) or not thread.frames:
                continue
            who = flamegraph.thread_name(dump.pid, thread, names)
            stack = [
                frames.setdefault((f.function, f.file, f.line), len(frames))
                for f in reversed(fr.normalise_frames(thread.frames))
            ]
            if len(stack) > MAX_STACK_FRAMES:
                half = MAX_STACK_FRAMES // 2
                stack = [*stack[:half], *stack[-half:]]
            samples.setdefault(who, []).append(stack)
    if not samples:
        return {}
    return {
        "$schema": SCHEMA_ADDRESS,
        "exporter": f"reprokit {__version__}",
        "name": title,
        "activeProfileIndex": 0,
        "shared": {
            "frames": [
                {"name": name, "file": file, **({"line": line} if line else {})}
                for name, file, line in frames
            ]
        },
        "profiles": [
            {
                "type": "sampled",
                "name": who,
                "unit": "none",
                "startValue": 0,
                "endValue": len(stacks),
                "samples": stacks,
                "weights": [1] * len(stacks),
            }
            for who, stacks in samples.items()
        ],
    }
