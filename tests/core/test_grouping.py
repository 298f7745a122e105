"""Recorded sightings with a known cause are grouped by the current rules."""

from __future__ import annotations

import pytest

from benchmarks.measurements.nightly import grouping

ROWS = grouping.read_sightings(grouping.SIGHTINGS)
NOT_DISTINGUISHED = {
    "crash: kernel-run | SIGSEGV in <generated>:call": (
        "a memory error in generated code says nothing of the operator"
    ),
    "wrong-result: inductor | numbers @ reinplace_inplaceable_ops": "two reports blame one pass",
}
SPLIT = {
    "made-custom-backend": "the backend's own words name a node",
    "197896": "torch 2.12 breaks the graph for another reason",
    "192498": "where a deadline meets a slow compile is chance",
}


def test_two_bugs_share_no_signature_except_known_cases() -> None:
    """181 sightings of 35 bugs are from three versions of torch and several models, modes and
    sizes.
    """
    assert set(grouping.shared_signatures(ROWS)) == set(NOT_DISTINGUISHED)


def test_one_bug_has_one_signature_except_known_cases() -> None:
    """Hosts, sizes, modes and versions do not change the signature of any bug without an entry in
    SPLIT.
    """
    assert set(grouping.split_bugs(ROWS)) == set(SPLIT)


@pytest.mark.parametrize("method", ["exact message", "three innermost frames"])
def test_signatures_are_better_than_simple_grouping(method: str) -> None:
    """The F1 score of signatures is higher than that of grouping by exact message and by the three
    innermost frames.
    """
    labels = [row["label"] for row in ROWS]

    def both(name: str) -> float:
        precision, recall = grouping.pairwise(labels, [grouping.METHODS[name](row) for row in ROWS])
        return 2 * precision * recall / (precision + recall)

    assert both("signature") > 0.9 > 0.7 > both(method)
