"""Recompiles and graph breaks are read from the messages of Dynamo."""

import dataclasses

import pytest

from reprokit.core.records import recompiles
from reprokit.core.shared.contract.events import GraphBreakFound, Recompile

REASON = (
    "0/3: self.n == 3                                              # self.n += 1  # x/model.py:19"
    " in forward (HINT: torch.compile considers integer attributes of the nn.Module to be"
    " static.)\nUser stack trace:\n  File ..."
)


def test_the_guard_the_line_and_the_location_are_parsed() -> None:
    """The guard, the source line and its location are parsed from a message of torch 2.13."""
    assert recompiles.read_guard(REASON) == (
        "self.n == 3",
        "self.n += 1",
        "x/model.py:19 in forward",
    )
    assert recompiles.read_guard("0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4")[
        0
    ].startswith("tensor 'x'")
    assert recompiles.read_guard("") == ("", "", "")


def test_a_guard_is_the_same_in_every_model() -> None:
    """Numbers and the names of locals belong to the program; attributes identify the bug."""
    same = {
        recompiles.normalise_guard(g)
        for g in (
            "kv_cache._current_idx[7] == 0",
            "cache._current_idx[12] == 3",
            "L['c']._current_idx[0] == 1",
        )
    }
    assert same == {"<input>._current_idx[#] == #"}
    assert recompiles.normalise_guard("self.n == 3") != recompiles.normalise_guard("self.m == 3")
    sizes = {
        recompiles.normalise_guard(f"tensor '{n}' size mismatch at index 0. expected {i}, actual 9")
        for n, i in (("x", 3), ("y", 4))
    }
    assert len(sizes) == 1


def test_the_worst_function_is_first_with_the_changing_value() -> None:
    """A function that hit its limit is listed before a function that was only compiled often."""
    often = [
        Recompile(function="f", file="a.py", line=1, cid=f"0/{i}", reasons=[f"0/{i}: x.n == {i}"])
        for i in range(7)
    ]
    limited = [Recompile(function="g", file="a.py", line=9, cid="1/1", reasons=["1/0: y.k == 0"])]
    first, second = recompiles.recompiled_functions(
        [*often, *limited], {"0:1": "recompile_limit"}, {"0:0": 1.5}
    )
    assert (first.function, first.limit, first.count) == ("g", "recompile_limit", 1)
    assert (second.count, second.cpu_s, second.guard) == (7, 1.5, "<input>.n == #")
    assert second.changes == "x.n == 0, then x.n == 6"


def test_the_place_in_torch_that_made_a_guard_is_not_shown() -> None:
    """The guard is on a value that no line of the program names."""
    place = "(_dynamo/output_graph.py:3375 in remove_tensorify_specialized_graphargs)"
    reasons = [f"0/{n}: self.groups[0]['betas'][0] == 0.9{n}  # {place}" for n in range(3)]
    events = [Recompile(function="f", file="a.py", line=1, reasons=[one]) for one in reasons]
    (row,) = recompiles.recompiled_functions(events, {}, {})
    one, last = (f"self.groups[0]['betas'][0] == 0.9{n}" for n in (0, 2))
    assert row.changes == f"{one}, then {last}"


def test_the_guard_that_fails_most_often_is_named_with_its_line() -> None:
    """Guards on other values in the first and the last recompile change neither of them."""
    named = ["G['rate'] == 0.5", *(f"G['steps'] == {n}" for n in range(1, 6)), "G['rate'] == 0.1"]
    events = [
        Recompile(
            function="f", file="a.py", line=1, reasons=[f"0/0: {g}  # {g[3:7]}  # a.py:{n} in f"]
        )
        for n, g in enumerate(named)
    ]
    (row,) = recompiles.recompiled_functions(events, {}, {})
    assert row.changes == "G['steps'] == 1, then G['steps'] == 5"
    assert (row.code, row.where) == ("step", "a.py:5 in f")


def test_guards_that_fail_behind_the_first_one_are_named_too() -> None:
    """A value that changes in less than half of the recompiles is not named."""
    named = [f"tensor 'x' size mismatch at index 0. expected {n}, actual {n + 1}" for n in range(6)]
    also = [[f"self.scale == {n / 8}", *["self.step == 0"] * (n < 2)] for n in range(6)]
    events = [
        Recompile(function="f", file="a.py", line=1, reasons=[f"0/0: {g}"], also=more)
        for g, more in zip(named, also, strict=True)
    ]
    (row,) = recompiles.recompiled_functions(events, {}, {})
    assert row.changes == "tensor 'x' size mismatch at index 0 and self.scale"
    assert [len(guards) for guards in row.changing] == [6, 6]


def test_a_break_that_is_raised_again_for_a_skipped_frame_counts_once() -> None:
    """Dynamo raises the same break again through the frame that it then skips."""
    event = GraphBreakFound(reason="Data-dependent branching", where="a.py:3")
    (graph_break,) = recompiles.graph_breaks([event, dataclasses.replace(event, is_given_up=True)])
    assert graph_break.count == 1 and graph_break.is_given_up
    assert recompiles.graph_breaks([event, event])[0].count == 2


def test_a_damaged_event_is_not_an_error() -> None:
    """A truncated journal does not raise an error."""
    assert (
        recompiles.recompiled_functions([Recompile(), Recompile(reasons=[])], {}, {})[0].count == 2
    )
    assert recompiles.graph_breaks([GraphBreakFound()])[0].count == 1


def test_a_recompile_limit_is_no_graph_break() -> None:
    """Dynamo raises it as one, but no graph is broken, and torch's own counter has none."""
    event = GraphBreakFound(reason="Dynamo recompile limit exceeded", is_given_up=True)
    assert recompiles.graph_breaks([event]) == ()


@pytest.mark.parametrize("file", ["/home/sam/my programs/it's/train.py", "a  b/ü.py", "C:/x/t.py"])
def test_a_guard_of_a_program_in_a_folder_with_a_space(file: str) -> None:
    """The position is a path of any form, and a comment in the line does not belong to it."""
    reason = f"0/7: self.n == 3      # self.n += 1  # the count  # {file}:12 in forward (HINT: use)"
    guard, code, where = recompiles.read_guard(reason)
    assert (guard, code) == ("self.n == 3", "self.n += 1  # the count")
    assert where == f"{file}:12 in forward"
