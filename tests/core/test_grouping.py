"""Sightings that were recorded, with what is known of their cause, are grouped by today's rules."""

from __future__ import annotations

import sys

import pytest

from ..conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import grouping

ROWS = grouping.read(ROOT / "benchmarks" / "data" / "sightings.jsonl")
NOT_TOLD_APART = {
    "crash: kernel-run | SIGSEGV in <generated>:call": (
        "a memory error in generated code says nothing of the operator"
    ),
    "wrong-result: inductor | numbers @ reinplace_inplaceable_ops": "two reports blame one pass",
}
SPLIT = {
    "made-custom-backend": "the backend's own words name a node",
    "oob-abort": "torch 2.9 aborts without a word",
    "197896": "torch 2.12 breaks the graph for another reason",
    "192498": "where a deadline meets a slow compile is chance",
}


def test_two_bugs_share_no_signature_but_where_it_is_known() -> None:
    """Of 181 sightings of 35 bugs in three versions of torch, in several models, modes and
    sizes.
    """
    found = {text.splitlines()[0] for text in grouping.wrong_groups(ROWS)}
    assert found == set(NOT_TOLD_APART)


def test_one_bug_has_one_signature_but_where_it_is_known() -> None:
    """Hosts, sizes, modes and versions change no signature of the others."""
    assert {text.splitlines()[0] for text in grouping.split_labels(ROWS)} == set(SPLIT)


@pytest.mark.parametrize("method", ["exact message", "three innermost frames"])
def test_signatures_are_better_than_what_is_at_hand(method: str) -> None:
    """Precision and recall together beat grouping by the exact message and by the top three
    frames.
    """
    labels = [row["label"] for row in ROWS]

    def both(name: str) -> float:
        precision, recall = grouping.pairwise(labels, [grouping.METHODS[name](row) for row in ROWS])
        return 2 * precision * recall / (precision + recall)

    assert both("signature") > 0.9 > 0.7 > both(method)
