"""The reasons why CUDA graphs are skipped are read from Inductor's messages (of torch 2.13)."""

from __future__ import annotations

import dataclasses

from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.observation import Observation
from reprokit.core.records.remarks import cudagraph_skips
from reprokit.core.shared.contract.events import CudagraphSkipped

MUTATED = """skipping cudagraphs due to mutated inputs (2 instances). Found from : 
   File "/home/someone/decode.py", line 45, in forward
    cache.index_copy_(2, position, key)
"""  # noqa: W291 - as torch writes it
DOUBLED = (
    "skipping cudagraphs due to skipping cudagraphs due to cpu device (arg0_1). Found from : \n  "
    ' File "/m.py", line 3, in f'
)


def test_reasons_and_lines_are_read() -> None:
    """The prefix may appear twice, the trace may be missing, and unrelated messages are not
    skips.
    """
    assert cudagraph_skips.read_skip(MUTATED) == cudagraph_skips.CudagraphSkip(
        "mutated inputs (2 instances)", "/home/someone/decode.py:45 in forward"
    )
    skip = cudagraph_skips.read_skip(DOUBLED)
    assert (
        skip == cudagraph_skips.CudagraphSkip("cpu device (arg0_1)", "/m.py:3 in f")
        and cudagraph_skips.reason_family(skip.reason) == "cpu device"
    )
    assert cudagraph_skips.read_skip(
        "skipping cudagraphs due to bisector"
    ) == cudagraph_skips.CudagraphSkip("bisector")
    assert cudagraph_skips.read_skip("recording cudagraph tree for graph without symints") is None


def test_a_skip_is_a_verdict_of_its_own() -> None:
    """The verdict is the same when the run succeeds and when torch raises an error for the skip;
    any other failure has its own verdict.
    """
    skips = cudagraph_skips.group_skips(
        [CudagraphSkipped(message=text) for text in (MUTATED, MUTATED, DOUBLED)]
    )
    assert [s.count for s in skips] == [2, 1]
    seen = Observation(exit_status=0, has_finished=True, skips=skips)
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.cause) == ("cudagraph-skip", "mutated inputs")
    assert verdict.work["line"] == "/home/someone/decode.py:45 in forward"
    raised = Raised((Link("builtins.RuntimeError", MUTATED),))
    raised_verdict = judge_run(
        dataclasses.replace(seen, exit_status=1, has_finished=False, raised=raised)
    )
    assert (
        raised_verdict.kind == "cudagraph-skip"
        and sign_verdict(raised_verdict, seen).id == sign_verdict(verdict, seen).id
    )
    unrelated = Raised((Link("builtins.RuntimeError", "something else"),))
    assert (
        judge_run(
            dataclasses.replace(seen, exit_status=1, has_finished=False, raised=unrelated)
        ).kind
        != "cudagraph-skip"
    )
