"""What of reprokit the evidence of a failure names."""

from __future__ import annotations

import pytest

from reprokit.core.judge.responsible.own_traces import is_same_end, trace_of_reprokit
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.observation import Observation

RUN = "/home/bob/reprokit-out/run-001"
CACHE = f"{RUN}/cache/ab/c{'a' * 50}.main.cpp"


def failed(message: str, *frames: Frame) -> Observation:
    return Observation(
        exit_status=1, raised=Raised((Link("builtins.RuntimeError", message, frames),), "uncaught")
    )


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("no such option: REPROKIT_RUN_DIR", "REPROKIT_RUN_DIR"),
        (f"cannot open {RUN}/journal/7.jsonl", RUN),
        ("g++: error: /tmp/reprokit-link-a1b2/folder: no such file", "reprokit-link-a1b2"),
        (f"g++ failed: {CACHE}:12:3: error: x was not declared", ""),
        ("size mismatch", ""),
    ],
)
def test_names_of_reprokit_in_a_message(message: str, named: str) -> None:
    """A file that Inductor wrote into the cache of the run names nothing."""
    assert trace_of_reprokit(failed(message), (RUN, "")) == named


def test_a_hook_that_raises_is_named() -> None:
    """A hook further out is on each stack."""
    hook = Frame("/run/_reprokit/agent/torch_hooks/hooks.py", "watched", 3)
    torch = Frame("/v/site-packages/torch/_dynamo/utils.py", "f", 4)
    assert trace_of_reprokit(failed("x", hook, torch), ()) == "its hook watched"
    assert trace_of_reprokit(failed("x", torch, hook), ()) == ""


def test_two_ends_are_the_same_if_their_messages_are_but_for_the_numbers() -> None:
    seen = failed("expected size 3==4")
    assert is_same_end(seen, 1, Link("RuntimeError", "expected size 5==6", ()))
    assert not is_same_end(seen, 1, Link("RuntimeError", "no such file", ()))
    assert not is_same_end(seen, 1, Link("ValueError", "expected size 5==6", ()))
    assert not is_same_end(seen, 0, None)
    crashed = Observation(exit_status=-11)
    assert is_same_end(crashed, -11, None)
    assert not is_same_end(crashed, -6, None)
