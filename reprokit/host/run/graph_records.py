"""Find the compiled graphs in the journals, and where the graphs of two ranks differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprokit.core.records import rank_graphs
from reprokit.core.records.rank_graphs import CollectiveCall, GraphRecord
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import Graph, GraphDone, SameRanks
from reprokit.host.system import files


def read_graph_records(
    graphs: Sequence[Graph],
    finished: Sequence[GraphDone],
    ranks: Mapping[str, int],
    same: SameRanks,
) -> list[GraphRecord]:
    """Return the graphs of the events ``graph`` and ``graph_done``; ``ranks`` has the pid of each
    rank. The ranks of ``same`` have the graphs with which rank 0 enters the compiler.
    """
    done = {e.n for e in finished if e.n is not None}
    of_pid = {pid: rank for rank, pid in ranks.items()}
    records = [_graph(e, done, of_pid.get(e.pid, "")) for e in graphs]
    return records + [
        dataclasses.replace(record, rank=str(rank))
        for rank in same.ranks
        for record in records
        if record.rank == "0" and record.is_entered
    ]


def describe_difference(graphs: list[GraphRecord], run_path: Path) -> str:
    """Describe two ranks that compiled different graphs, and the first line that differs."""
    pair = rank_graphs.mismatch_of_ranks(graphs)
    if pair is None:
        return ""
    difference = rank_graphs.describe_mismatch(graphs)
    numbers = [
        next((h.number for h in graphs if h.digest == g.digest and h.number >= 0), -1) for g in pair
    ]
    texts = [
        files.read_text(run_path / run_names.GRAPHS_FOLDER / f"{n:04d}" / run_names.GRAPH_FILE)
        for n in numbers
        if n >= 0
    ]
    rows = [[r.split(";")[0].strip() for r in t.splitlines()[1:] if " = " in r] for t in texts]
    for first, second in zip(*rows, strict=False) if len(rows) == 2 else ():
        if first != second:
            return (
                f"{difference}; the first different lines are `{cuts.cut_head(first, 200)}` and"
                f" `{cuts.cut_head(second, 200)}`"
            )
    return difference


def _graph(event: Graph, done: set[int], rank: str) -> GraphRecord:
    return GraphRecord(
        number=-1 if event.n is None else event.n,
        level=event.level,
        cid=event.cid or "",
        nodes=event.nodes,
        is_backward=event.backward,
        is_done=event.n in done,
        rank=rank,
        calls=tuple(CollectiveCall(*call) for call in event.calls if len(call) == 2),
        digest=event.digest,
    )
