"""Recompiles and graph breaks, from what Dynamo says of them."""

import dataclasses

from reprokit.core.records import recompiles
from reprokit.core.shared.contract.events import GraphBreakFound, Recompile

SAID = (
    "0/3: self.n == 3                                              # self.n += 1  # x/model.py:19"
    " in forward (HINT: torch.compile considers integer attributes of the nn.Module to be"
    " static.)\nUser stack trace:\n  File ..."
)


def test_the_guard_the_line_and_the_place_are_read() -> None:
    """Of one reason that torch 2.13 gave."""
    assert recompiles.read_guard(SAID) == ("self.n == 3", "self.n += 1", "x/model.py:19 in forward")
    assert recompiles.read_guard("0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4")[
        0
    ].startswith("tensor 'x'")
    assert recompiles.read_guard("") == ("", "", "")


def test_a_guard_is_one_in_every_model() -> None:
    """Numbers and the names of locals are the program's; attributes say what the bug is about."""
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


def test_the_worst_function_stands_first_with_what_changes() -> None:
    """One that hit its limit before one that only was compiled often."""
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


def test_a_break_that_is_heard_again_where_its_function_is_given_up_counts_once() -> None:
    """Dynamo raises the same break through the frame that it then skips."""
    event = GraphBreakFound(reason="Data-dependent branching", where="a.py:3")
    (found,) = recompiles.graph_breaks([event, dataclasses.replace(event, is_given_up=True)])
    assert found.count == 1 and found.is_given_up
    assert recompiles.graph_breaks([event, event])[0].count == 2


def test_what_is_damaged_is_no_error() -> None:
    """Journals may be cut."""
    assert (
        recompiles.recompiled_functions([Recompile(), Recompile(reasons=[])], {}, {})[0].count == 2
    )
    assert recompiles.graph_breaks([GraphBreakFound()])[0].count == 1
