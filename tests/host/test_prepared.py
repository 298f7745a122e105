"""The memory of a prepared process is read without trusting it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from reprokit.core.judge.stacks import frames
from reprokit.core.records.journal_reader import decode_events, open_events
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End, Process, Progress
from reprokit.core.shared.contract.journal_format import (
    MEMORY_BYTES,
    MEMORY_JOURNAL,
    NOW_BYTES,
    SLOT_BYTES,
    SLOTS,
    Now,
    encode_event,
    encode_now,
    encode_slot,
)
from reprokit.host.attach.prepared import PreparedProcesses, _Journal
from reprokit.host.system import files


class Ring:
    """The memory of a process."""

    def __init__(self) -> None:
        self.data = bytearray(MEMORY_BYTES)
        self.count = 0

    def put(self, event: Event, number: int | None = None) -> None:
        number = self.count if number is None else number
        at = NOW_BYTES + number % SLOTS * SLOT_BYTES
        self.data[at : at + SLOT_BYTES] = encode_slot(number, encode_event(event))
        self.count = max(self.count, number + 1)

    def tear(self, number: int) -> None:
        at = NOW_BYTES + number % SLOTS * SLOT_BYTES
        self.data[at : at + 8] = b"\0" * 8


def begin(name: str) -> Begin:
    return Begin(t=1.0, tid=3, name=name)


def end(name: str) -> End:
    return End(t=2.0, tid=3, name=name)


def names(events: list[Event]) -> list[str]:
    return [f"{event.ev} {getattr(event, 'name', '')}" for event in events]


def test_events_are_read_once_and_in_their_order() -> None:
    """The ring may have been written around several times before it is read first."""
    ring, journal = Ring(), _Journal(1)
    for number in range(SLOTS * 2 + 5):
        ring.put(begin(f"e{number}"))
    first = names(journal.take(bytes(ring.data)))
    assert len(first) == SLOTS and first[-1] == f"begin e{SLOTS * 2 + 4}"
    assert journal.take(bytes(ring.data)) == []
    ring.put(end("last"))
    assert names(journal.take(bytes(ring.data))) == ["end last"]


def test_an_event_that_is_being_written_is_waited_for() -> None:
    """A thread may write its slot after a thread that took a later number."""
    ring, journal = Ring(), _Journal(1)
    ring.put(begin("a"))
    ring.put(end("a"), number=2)
    assert names(journal.take(bytes(ring.data))) == ["begin a"]
    ring.put(begin("b"), number=1)
    assert names(journal.take(bytes(ring.data))) == ["begin b", "end a"]
    ring.put(begin("c"))
    ring.put(begin("d"))
    ring.tear(3)
    assert journal.take(bytes(ring.data)) == []
    # it is not there the second time: its thread is gone, and phases may have ended
    assert names(journal.take(bytes(ring.data)))[-1] == "begin d"
    assert names(list(journal.begun)) == ["begin d"]


def test_lost_events_leave_no_phase_open() -> None:
    """The end of a phase may be among the events that were overwritten before they were read."""
    ring, journal = Ring(), _Journal(1)
    ring.put(begin("outer"))
    ring.put(Begin(t=1.0, tid=4, name="of a different thread"))
    ring.put(begin("inner"))
    seen = journal.take(bytes(ring.data))
    for number in range(SLOTS + 10):
        ring.put(Progress(t=1.5, tid=3, count=number))
    ring.put(begin("new"))
    seen += journal.take(bytes(ring.data))
    assert [e.name for e in open_events(seen)] == ["new"]


def hostile_memory() -> int:
    """Create the memory of this process with events that only a capture records."""
    ring = Ring()
    ring.put(Process(t=time.time(), pid=1, argv=["python3", "evil.py"], cwd="/tmp"))
    ring.put(Begin(t=time.time(), pid=1, tid=os.getpid(), name="GraphLowering.run"))
    ring.data[:NOW_BYTES] = encode_now(Now(time.monotonic(), "node", "mul"))
    fd = os.memfd_create(f"{MEMORY_JOURNAL}{os.getpid()}")
    os.write(fd, ring.data)
    return fd


def test_only_phases_are_taken_from_a_process(tmp_path: Path) -> None:
    """A process that names a script for its repro is not believed, nor a pid that is not its own.
    After an exec it has new memory.
    """
    (tmp_path / "journal").mkdir()
    prepared = PreparedProcesses(tmp_path)
    for count in (1, 2):
        fd = hostile_memory()
        try:
            prepared.copy_news([os.getpid()])
        finally:
            os.close(fd)
        lines = (tmp_path / "journal" / f"{os.getpid()}.jsonl").read_bytes()
        events, wrong = decode_events(lines)
        assert names(events) == ["begin GraphLowering.run"] * count and wrong == 0
        assert {json.loads(line)["pid"] for line in lines.splitlines()} == {os.getpid()}
    assert 0 <= prepared.quiet_s(os.getpid()) < 60
    assert "node mul" not in (tmp_path / "journal" / f"{os.getpid()}.now").read_text()


def test_a_file_that_is_no_memory_is_not_opened(tmp_path: Path) -> None:
    """The name proves nothing: the file is examined before it is opened."""
    secret = tmp_path / f"memfd:{MEMORY_JOURNAL}{os.getpid()} (deleted)"
    secret.write_text("secret")
    gone = (tmp_path / "gone").open("w+b")
    (tmp_path / "gone").unlink()
    null = os.open("/dev/null", os.O_RDONLY)
    memory = hostile_memory()
    with secret.open("rb") as file, gone:
        for fd in (file.fileno(), gone.fileno(), null):
            with pytest.raises(OSError, match="not a memory file"):
                files.open_memory_file(Path(f"/proc/self/fd/{fd}"), os.geteuid())
    with pytest.raises(OSError, match="not a memory file"):
        files.open_memory_file(Path(f"/proc/self/fd/{memory}"), os.geteuid() + 1)
    with files.open_memory_file(Path(f"/proc/self/fd/{memory}"), os.geteuid()) as opened:
        assert opened.read(NOW_BYTES)
    os.close(memory)
    os.close(null)


def test_a_long_path_in_a_dump_costs_no_time() -> None:
    """A search in each of its parts once took 43 seconds."""
    path = "/" + ".py" * 1_000_000 + "/"
    text = f'Thread 0x1 (most recent call first):\n  File "{path}", line 1 in f\n'
    began = time.process_time()
    ((thread),) = frames.parse_faulthandler(text, 7)
    assert len(thread.frames[0].file) <= frames.MAX_PATH_CHARS
    assert time.process_time() - began < 20
