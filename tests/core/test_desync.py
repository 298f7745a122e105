"""The first disagreement of ranks names the odd ones, whatever they did."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from reprokit.core.ranks.desync import Desync, find_desync
from reprokit.core.ranks.rank_names import rank_ranges
from reprokit.core.ranks.rank_records import RankRecord, RankState, RecordedCall

STEP = ("all_reduce", "all_gather", "broadcast", "barrier")


def program(size: int, steps: int = 4) -> dict[int, list[RecordedCall]]:
    """Return the calls of ranks that agree, all of them done."""
    names = STEP * steps
    return {
        rank: [
            RecordedCall(
                "0",
                number,
                name,
                "[[8]] -> [[8]]",
                "Float",
                True,
                number * 1_000_000_000 + rank,
                f"train.py:{10 + number % 4} in step",
            )
            for number, name in enumerate(names, 1)
        ]
        for rank in range(size)
    }


def stop_at(calls: dict[int, list[RecordedCall]], number: int, odd: int, own: list[str]) -> None:
    """Let all ranks wait in a call, and let one call ``own`` instead, the last of which waits."""
    for rank, row in calls.items():
        kept = row[: number - 1]
        if rank == odd:
            for offset, name in enumerate(own):
                base = row[number - 1 + offset]
                kept.append(dataclasses.replace(base, operation=name, is_done=False))
        else:
            kept.append(dataclasses.replace(row[number - 1], is_done=False))
        calls[rank] = kept


def find(calls: dict[int, list[RecordedCall]], **states: RankState) -> Desync | None:
    records = {rank: RankRecord(rank, tuple(row)) for rank, row in calls.items()}
    return find_desync(records, {s.rank: s for s in states.values()}, range(len(calls)))


@pytest.mark.parametrize("size", [2, 3, 8, 64])
@pytest.mark.parametrize("number", [10, 11, 13])
@pytest.mark.parametrize("how", ["skip", "slow", "ended", "sizes", "dtypes"])
def test_the_odd_rank_is_named(how: str, number: int, size: int) -> None:
    """It calls the next collective, nothing, or the same one with different tensors."""
    odd = random.Random(f"{how}{size}{number}").randrange(size)
    calls = program(size)
    following = calls[0][number].operation
    stop_at(calls, number, odd, [following] if how == "skip" else [])
    if how in ("sizes", "dtypes"):
        base = dataclasses.replace(program(1)[0][number - 1], is_done=False, operation="all_reduce")
        for rank in calls:
            calls[rank] = [*calls[rank][: number - 1], base]
        wrong = {"sizes": "[[9]] -> [[9]]", "dtypes": "Double"}[how]
        calls[odd][-1] = dataclasses.replace(base, **{how: wrong})
        if number % 4 != 1:  # the history has all_reduce only there
            for rank in calls:
                for index in range(number - 1):
                    calls[rank][index] = dataclasses.replace(
                        calls[rank][index], operation="all_reduce"
                    )
    if how == "ended":
        calls[odd] = []
        records = {r: RankRecord(r, tuple(row)) for r, row in calls.items() if r != odd}
        found = find_desync(records, {}, range(size))
    else:
        found = find(calls)
    kinds = {"skip": "operation", "slow": "missing", "ended": "missing"}
    assert found is not None and found.kind == kinds.get(how, how)
    assert found.odd == (odd,) and found.is_sure, found
    assert found.others == tuple(rank for rank in range(size) if rank != odd)
    assert len(found.details) == 1 and f"rank {odd} " in found.details[0]


def test_what_one_rank_did_is_described() -> None:
    calls = program(4)
    stop_at(calls, 6, 2, ["broadcast", "all_gather"])
    for rank in (0, 1, 3):  # asynchronous calls go on
        row = program(1)[0]
        calls[rank].append(dataclasses.replace(row[6], is_done=False))
    found = find(calls)
    assert found and "rank 2 calls broadcast before all_gather #6" in found.details[0]
    calls = program(4)
    stop_at(calls, 6, 2, ["broadcast"])
    for rank in (0, 1, 3):
        calls[rank].append(dataclasses.replace(program(1)[0][6], is_done=False))
    found = find(calls)
    assert found and "rank 2 left out all_gather #6" in found.details[0]


def test_ranks_that_agree_have_no_odd_one() -> None:
    """Calls that the recorder has dropped, and a collective that all wait in, are no desync."""
    assert find(program(4)) is None
    calls = program(4)
    calls[1] = calls[1][5:]
    assert find(calls) is None
    for rank, row in calls.items():
        calls[rank] = [*row[:-1], dataclasses.replace(row[-1], is_done=False)]
    found = find(calls)
    assert found is not None and (found.kind, found.odd) == ("incomplete", ())


def test_without_a_majority_and_a_history_nothing_is_named() -> None:
    calls = program(2, steps=1)
    for rank, name in enumerate(("all_reduce", "barrier")):
        calls[rank] = [dataclasses.replace(calls[rank][0], operation=name, is_done=False)]
    found = find(calls)
    assert found is not None and not found.is_sure and found.odd == (0, 1)


def test_sizes_that_may_differ_are_not_compared() -> None:
    calls = program(3)
    for rank, row in calls.items():
        calls[rank] = [
            dataclasses.replace(c, operation="scatter", sizes=f"[[{rank}]]") for c in row
        ]
    assert find(calls) is None


def test_one_rank_with_an_additional_call_is_no_proof() -> None:
    """Nobody knows whether the other ranks are late."""
    calls = program(8)
    extra = dataclasses.replace(calls[5][-1], number=17, operation="all_reduce", is_done=False)
    calls[5].append(extra)
    found = find(calls)
    assert found is not None and not found.is_sure
    assert "only 1 of 8 ranks called all_reduce #17" in found.details[0]


def test_a_rank_that_waits_in_a_different_group_is_not_the_cause() -> None:
    """Ranks 0 and 1 wait for 2 in one group, 2 waits for 3 in another: 3 is the odd one."""
    waiting = RecordedCall("pair", 1, "all_reduce", "", "", False, 5_000)
    chained = RecordedCall("rest", 1, "all_reduce", "", "", False, 9_000)
    members = {"pair": (0, 1, 2), "rest": (2, 3)}
    records = {
        0: RankRecord(0, (waiting,), members),
        1: RankRecord(1, (waiting,), members),
        2: RankRecord(2, (chained,), members),
        3: RankRecord(3, (), members),
    }
    compiling = RankState(3, "lowering", summary="rank 3 is not in a collective: it compiles")
    found = find_desync(records, {3: compiling}, range(4))
    assert found is not None and found.odd == (3,)
    assert "it compiles" in found.details[0]


@pytest.mark.parametrize("change", [{"sizes": "[[16]] -> [[16]]"}, {"dtypes": "Double"}, {}])
def test_the_history_of_the_only_record_decides(change: dict[str, str]) -> None:
    """Of two ranks, one has ended when the sizes or types of the other were different. A last call
    as before says nothing.
    """
    calls = program(2)[1][:13]
    calls[-1] = dataclasses.replace(calls[-1], **change)
    found = find_desync({1: RankRecord(1, tuple(calls))}, {}, range(2))
    assert (found.odd if found else ()) == ((1,) if change else ())
    assert found is None or ", as before" in found.details[0]


def test_rank_ranges() -> None:
    write: Callable[..., str] = rank_ranges
    assert write([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8" and write([]) == ""


def test_the_first_call_that_all_made_and_none_completed_is_named() -> None:
    """Some ranks have called more since then, without waiting."""
    calls = program(4)
    for rank, row in calls.items():
        kept = [dataclasses.replace(call, is_done=call.number < 10) for call in row]
        calls[rank] = kept[: 10 if rank == 3 else 12]
    found = find(calls)
    assert found is not None and (found.kind, found.number, found.odd) == ("incomplete", 10, ())


def test_calls_that_are_done_are_no_desync() -> None:
    """Only the root of a scatter has inputs, and tensors of the same number of values match."""
    calls = program(3)
    for rank, row in calls.items():
        calls[rank] = [dataclasses.replace(call, sizes=f"[[{rank}]]") for call in row]
    assert find(calls) is None


def test_a_group_without_known_members_has_no_absent_ranks() -> None:
    calls = program(3)
    own = RecordedCall("1", 1, "all_reduce", "", "", False, 5_000)
    calls[0].append(own)
    calls[1].append(own)
    found = find(calls)
    assert found is not None and (found.kind, found.odd) == ("incomplete", ())
    assert found.details == ("the members of the group are not recorded",)


def test_large_numbers_take_no_time() -> None:
    calls = program(2)
    for rank in calls:
        calls[rank].append(dataclasses.replace(calls[rank][-1], number=10**15))
    assert find(calls) is None
