"""A journal that is cut at any byte loses at most the line that was being written."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.records.journal_reader import EVENT_TYPES, decode_events, decode_now, open_events
from reprokit.core.shared.contract.events import (
    Begin,
    ChainLink,
    End,
    Event,
    ExceptionRaised,
    Graph,
    Process,
    Progress,
    Recompile,
    TargetBuilt,
    WarningShown,
)
from reprokit.core.shared.contract.journal_format import (
    MAX_LINE_BYTES,
    NOW_BYTES,
    Now,
    encode_event,
    encode_now,
)

TEXT = st.text(max_size=20)
EVENT = st.one_of(
    st.builds(Begin, name=TEXT, cid=TEXT | st.none(), cpu=st.floats(0, 1e6), tid=st.integers(0, 9)),
    st.builds(Recompile, function=TEXT, line=st.integers(0, 9), reasons=st.lists(TEXT, max_size=3)),
    st.builds(
        TargetBuilt,
        form=TEXT,
        is_module=st.booleans(),
        compile=st.dictionaries(TEXT, TEXT | st.booleans()),
    ),
    st.builds(
        ExceptionRaised,
        chain=st.tuples(
            st.builds(ChainLink, type=TEXT, frames=st.tuples(st.tuples(TEXT, TEXT, st.none())))
        ),
    ),
)


@given(st.lists(EVENT, max_size=6), st.integers(0, 2000))
def test_a_journal_cut_at_any_byte_is_readable(events: list[Event], cut: int) -> None:
    """Every whole line before the cut is decoded to the event that was written."""
    lines = [encode_event(e) for e in events]
    data = b"".join(lines)[:cut]
    decoded, bad = decode_events(data)
    whole = data.count(b"\n")
    assert decoded[:whole] == events[:whole]
    assert bad <= 1
    assert len(decoded) + bad <= whole + 1


@given(st.binary(max_size=300))
def test_any_bytes_are_readable(data: bytes) -> None:
    """Invalid lines are counted and never raise an error."""
    decoded, bad = decode_events(data)
    assert all(isinstance(e, Event) for e in decoded)
    assert bad >= 0


def test_an_endless_event_becomes_a_stub() -> None:
    """A reader never has to hold an unlimited line."""
    line = encode_event(WarningShown(pid=3, message="x" * (2 * MAX_LINE_BYTES)))
    assert len(line) < 200
    (event,), _ = decode_events(line)
    assert isinstance(event, WarningShown) and event.pid == 3 and event.cut_bytes > MAX_LINE_BYTES


def test_every_event_is_restored() -> None:
    """Each event class of the contract is restored from its line, and an event with an unknown name
    is left out.
    """
    events = [kind() for kind in EVENT_TYPES.values()]
    assert decode_events(b"".join(map(encode_event, events))) == (events, 0)
    assert decode_events(b'{"ev": "of a later version", "name": "x"}\n') == ([], 0)


@given(st.text(max_size=900), st.text(max_size=900), st.floats(1e9, 2e9), st.integers(0, 10**9))
def test_the_record_of_now_is_overwritten_whole(
    where: str, repeated: str, t: float, repeats: int
) -> None:
    """A shorter record leaves nothing of a longer one behind, and no text hides the count."""
    data = bytearray(encode_now(Now(1.0, "line", "y" * 1000, 5, "z" * 1000)))
    data[:] = encode_now(Now(t, "node", where, repeats, repeated))
    assert len(data) == NOW_BYTES
    record = decode_now(bytes(data))
    assert (record.unit, record.repeats) == ("node", repeats) and abs(record.t - t) < 0.01
    if where.isascii() and where.isprintable() and len(where) < 200:
        assert record.where == where


def test_open_events_are_those_of_the_thread_that_wrote_last() -> None:
    """An event that an exception left open is closed by the end of its enclosing event."""
    rows = [
        ("begin", "a", 1),
        ("begin", "b", 1),
        ("begin", "c", 1),
        ("end", "b", 1),
        ("begin", "x", 2),
        ("begin", "d", 1),
    ]
    kinds = {"begin": Begin, "end": End}
    assert [
        e.name for e in open_events(kinds[ev](name=name, tid=tid) for ev, name, tid in rows)
    ] == ["a", "d"]
    assert open_events([]) == []


def test_invalid_fields_that_a_target_wrote_are_replaced() -> None:
    """A field of the wrong type gets its default, so no reader has to check it."""
    odd = [
        {"ev": "begin", "name": ["a"], "tid": [1], "t": "now"},
        {"ev": "process", "rank": "\u00b2", "world_size": "9" * 99, "can_dump": True},
        {"ev": "exception", "chain": [5]},
        {"ev": "exception", "chain": [{"type": 1, "frames": [["f", "g"]]}]},
        {"ev": "graph", "n": "x", "nodes": 1e400},
        {"ev": "progress", "count": "abc", "dropped": True},
    ]
    decoded, bad = decode_events(b"".join(json.dumps(e).encode() + b"\n" for e in odd))
    assert bad == 0
    empty = [
        Begin(),
        Process(can_dump=True),
        ExceptionRaised(),
        ExceptionRaised(),
        Graph(),
        Progress(),
    ]
    assert decoded == empty
    assert open_events(decoded)
