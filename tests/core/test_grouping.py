"""Recorded sightings with a known cause are grouped by the current rules."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from benchmarks.measurements.nightly import grouping

NOT_DISTINGUISHED = {
    "crash: kernel-run | SIGSEGV in <generated>:call": (
        "a memory error in generated code says nothing of the operator"
    ),
    "wrong-result: inductor | numbers @ reinplace_inplaceable_ops": "two bugs blame one pass",
}
SPLIT = {
    "made-custom-backend": "the backend's own words name a node",
    "197896": "torch 2.12 breaks the graph for another reason",
    "198131": "the recorded runs with torch 2.12 and 2.13 name no pass",
    "192498": "where a deadline meets a slow compile is chance",
}


@functools.cache
def rows() -> list[dict[str, Any]]:
    return grouping.read_sightings(grouping.SIGHTINGS)


def test_two_bugs_share_no_signature_except_known_cases() -> None:
    """The sightings of 35 bugs are from five versions of torch and several models, modes and
    sizes.
    """
    assert set(grouping.shared_signatures(rows())) == set(NOT_DISTINGUISHED)


def test_one_bug_has_one_signature_except_known_cases() -> None:
    """Hosts, sizes, modes and versions do not change the signature of any bug without an entry in
    SPLIT.
    """
    assert set(grouping.split_bugs(rows())) == set(SPLIT)


@pytest.mark.parametrize("method", ["exact message", "three innermost frames"])
def test_signatures_are_better_than_simple_grouping(method: str) -> None:
    """The F1 score of signatures is higher than that of grouping by exact message and by the three
    innermost frames.
    """
    labels = [row["label"] for row in rows()]

    def both(name: str) -> float:
        precision, recall = grouping.pairwise(
            labels, [grouping.METHODS[name](row) for row in rows()]
        )
        return 2 * precision * recall / (precision + recall)

    assert both("signature") > 0.9 > 0.7 > both(method)


def test_one_bug_has_one_signature_in_different_versions_of_torch() -> None:
    """Of the pairs of different versions that are one bug, at least 95 % share their signature, and
    only the bugs that are not distinguished share one wrongly.
    """
    newest = {"2.14.1", "2.15.0"}
    assert newest <= {str(row["torch"]).partition("+")[0] for row in rows()}
    row = grouping.table_row("across", rows(), is_across_versions=True)
    assert float(row["signature, recall"] or 0) >= 0.95
    confused = [r for r in rows() if r["signature"]["title"] not in NOT_DISTINGUISHED]
    row = grouping.table_row("across", confused, is_across_versions=True)
    assert row["signature, precision"] == 1.0
