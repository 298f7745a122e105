"""Which simulated ranks are traced again."""

from __future__ import annotations

import os
from typing import Any

import pytest

from reprokit.agent.record import graph_recorder
from reprokit.agent.target import same_ranks


def reads_its_rank(mesh: Any) -> Any:
    return mesh.get_local_rank()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entered", 2),
        ("has_symbolic_sizes", True),
        ("traced_code", {reads_its_rank.__code__}),
    ],
)
def test_a_rank_that_may_differ_is_traced(
    name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several graphs, symbolic sizes or a read of the rank, no fork decides for a rank."""
    ordinary = {"entered": 1, "has_symbolic_sizes": False, "traced_code": set()}
    for key, usual in ordinary.items():
        monkeypatch.setattr(graph_recorder, key, value if key == name else usual)
    monkeypatch.setattr(same_ranks, "_own_files", lambda: ())
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("no rank is tried"))
    assert same_ranks.find_same_ranks(4, lambda: None) == set()
    monkeypatch.setattr(graph_recorder, name, ordinary[name])
    with pytest.raises(pytest.fail.Exception, match="no rank is tried"):
        same_ranks.find_same_ranks(4, lambda: None)
