"""Read the stacks of all ranks that the debug server of torch.distributed writes.

``torch.distributed.debug.start_debug_server(dump_dir=...)`` writes
files ``stacks_TIME.txt``. For each rank they have a header, and its stacks as faulthandler
prints them. Its files ``fr_trace_TIME.txt`` are tables for people. The dumps of the flight
recorder have the same data.
"""

from __future__ import annotations

import re
from pathlib import Path

from reprokit.core.judge.hangs import ranks
from reprokit.core.judge.stacks import frames
from reprokit.core.ranks.rank_records import RankState
from reprokit.core.records.dumps import Dump
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence, ProcessState
from reprokit.host.system import files

MAX_BYTES = 64_000_000
NAME = re.compile(r"stacks_.*\.txt")
_HEADER = re.compile(r"^=== Rank (\d{1,6}): .*===$", re.MULTILINE)


def read_debug_stacks(path: Path) -> tuple[RankState, ...]:
    """Return where each rank was.

    Raises:
        ValueError: the file has no rank.
        OSError: it cannot be read.
    """
    with files.open_regular_file(path) as file:
        text = files.read_at_most(file, MAX_BYTES).decode("utf-8", "replace")
    parts = _HEADER.split(text)
    dumps = {}
    for rank, part in zip(parts[1::2], parts[2::2], strict=True):
        # one number stands for the rank and its process, whose pid is not known
        if threads := frames.parse_faulthandler(part, int(rank)):
            dumps[int(rank)] = Dump(1, "faulthandler", int(rank), tuple(threads))
    if not dumps:
        raise ValueError("no rank wrote its stacks into it")
    seen = Observation(
        dumps=tuple(dumps.values()),
        evidence=Evidence(processes=tuple(map(ProcessState, dumps))),
        ranks={str(rank): rank for rank in dumps},
        world_size=(len(parts) - 1) // 2,
        is_attached=True,
    )
    return ranks.rank_states(seen)
