"""The rank that differs from the others is found by the graphs that each rank compiled."""

from __future__ import annotations

import pytest

from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import (
    CollectiveCall,
    GraphRecord,
    mismatch_of_graphs,
    mismatch_of_ranks,
)


def graph(rank: str, calls: str, level: str = "dynamo", digest: str = "d") -> GraphRecord:
    """Return one graph with a collective for each letter."""
    collectives = tuple(
        CollectiveCall(f"{c} of f32[2]", f"model.py:{i} in f") for i, c in enumerate(calls)
    )
    return GraphRecord(0, level, "0/0", 3, rank=rank, calls=collectives, digest=digest)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (("ab", "ab", "ab"), None),
        (("",), None),
        (
            ("abc", "ac", "abc"),
            (
                "rank 1 skips b of f32[2] at model.py:1 in f, which ranks 0 and 2 call, after 1"
                " collectives"
            ),
        ),
        (
            ("ab", "ab", "", "ab"),
            "rank 2 skips a of f32[2] at model.py:0 in f, which ranks 0, 1 and 3 call",
        ),
        (
            ("a", "ab", "a"),
            "rank 1 calls b of f32[2] at model.py:1 in f, which ranks 0 and 2 do not",
        ),
        (
            ("ab", "ax"),
            (
                "rank 1 calls x of f32[2] at model.py:1 in f where rank 0 calls b of f32[2] at"
                " model.py:1 in f"
            ),
        ),
        (
            ("ab", "b", "b"),
            "rank 0 calls a of f32[2] at model.py:0 in f, which ranks 1 and 2 do not",
        ),
    ],
)
def test_the_odd_ranks_are_named_with_what_they_do(
    calls: tuple[str, ...], says: str | None
) -> None:
    """The majority is right; with two ranks, the first is right."""
    mismatch = mismatch_of_graphs([graph(str(rank), text) for rank, text in enumerate(calls)])
    assert (
        (mismatch is None)
        if says is None
        else (mismatch is not None and mismatch.summary.startswith(says))
    ), mismatch


def test_lowered_graphs_count_when_every_rank_has_them() -> None:
    """The collectives of DTensor appear only in lowered graphs."""
    rows = [graph("0", ""), graph("1", ""), graph("0", "a", "aten"), graph("1", "", "aten")]
    assert mismatch_of_graphs(rows[:3]) is None
    mismatch = mismatch_of_graphs(rows)
    assert mismatch is not None and mismatch.ranks == ("1",) and mismatch.does == "skips"


def test_the_first_graph_that_differs() -> None:
    """The result is the graph that differs and the graph of a different rank at the same
    position.
    """
    rows = [
        graph(r, "", digest=d)
        for r, d in (("0", "x"), ("1", "x"), ("2", "x"), ("0", "y"), ("1", "z"), ("2", "y"))
    ]
    mismatch = mismatch_of_ranks(rows)
    assert mismatch is not None and [(g.rank, g.digest) for g in mismatch] == [
        ("1", "z"),
        ("0", "y"),
    ]
    assert mismatch_of_ranks(rows[:3]) is None and mismatch_of_ranks([]) is None


def test_ranks_that_differ_are_reported_with_the_failure_that_follows() -> None:
    """When a peer leaves or the job hangs, the reason names the rank and the collective."""
    link = Link("RuntimeError", "Connection closed by peer [127.0.0.1]:9")
    rows = (graph("0", "a", digest="x"), graph("1", "", digest="y"))
    seen = Observation(
        exit_status=1,
        raised=Raised((link,), "call"),
        eager="fails",
        eager_detail="it fails",
        graphs=rows,
        graphs_differ="rank 1 compiled a different graph 0/0 than rank 0: 2 nodes, not 3",
    )
    verdict = judge_run(seen)
    assert (
        verdict.kind == "error-in-eager"
        and "rank 1 skips a of f32[2] at model.py:0 in f" in verdict.reason
    )
    assert verdict.evidence[-1].startswith("rank 1 compiled a different graph")
