"""What torch traces is written compressed, record by record, and within a limit."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest

from reprokit.agent.record import journal
from reprokit.agent.torch_hooks.trace_file import TraceFile
from reprokit.core.shared.contract import events
from reprokit.host.system import files


class Lines(logging.Formatter):
    """Writes a record as torch does, without its prefix."""

    def format(self, record: logging.LogRecord) -> str:
        payload = record.__dict__["payload"].replace("\n", "\n\t")
        return json.dumps(record.__dict__["metadata"]) + (f"\n\t{payload}" if payload else "")


def record(payload: str = "", **metadata: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({})
    made.__dict__.update(metadata=metadata, payload=payload)
    return made


def of_compile(number: int, payload: str = "", **more: Any) -> logging.LogRecord:
    return record(payload, frame_id=number, frame_compile_id=0, **more)


def read(folder: Path) -> str:
    (path,) = folder.glob("*.log.gz")
    with files.open_unpacked_file(path) as file:
        return file.read().decode()


@pytest.fixture
def journaled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    written: list[Any] = []
    monkeypatch.setattr(journal, "write_event", written.append)
    return written


def test_each_record_can_be_read_at_once(tmp_path: Path, journaled: list[Any]) -> None:
    """Nothing is lost at SIGKILL, and a file that is cut anywhere is read until there."""
    handler = TraceFile(str(tmp_path), 10**6, Lines())
    for number in range(3):
        handler.handle(of_compile(number, f"text of {number}"))
        assert read(tmp_path).endswith(f"text of {number}\n")
    (path,) = tmp_path.iterdir()
    whole, text = path.read_bytes(), read(tmp_path)
    assert text.startswith("V0101") and '"torch_version"' in text.splitlines()[0]
    for size in range(2, len(whole), 7):
        path.write_bytes(whole[:size])
        assert text.startswith(read(tmp_path))
    assert not journaled


def test_a_closed_file_goes_on(tmp_path: Path, journaled: list[Any]) -> None:
    """A program may call logging.shutdown, and fork."""
    handler = TraceFile(str(tmp_path), 10**6, Lines())
    handler.handle(of_compile(0, "before"))
    handler.close()
    handler.handle(of_compile(0, "after"))
    assert [line for line in read(tmp_path).splitlines() if line[0] == "\t"][1:] == [
        "\tbefore",
        "\tafter",
    ]
    if not (child := os.fork()):
        handler.handle(of_compile(0, "of the child"))
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 2 and not journaled


def test_the_oldest_complete_compiles_are_dropped(tmp_path: Path, journaled: list[Any]) -> None:
    """They are named; the names of files and the compiles that have not ended are kept."""
    handler = TraceFile(str(tmp_path), 60_000, Lines())
    handler.handle(record(str=["/model.py", 7]))
    for number in range(20):
        handler.handle(of_compile(number, os.urandom(4000).hex()))
        if number != 1:
            handler.handle(of_compile(number, compilation_metrics={}))
    dropped = [cid for event in journaled for cid in event.cids]
    text = read(tmp_path)
    assert dropped[:3] == ["0/0", "2/0", "3/0"]
    assert all(isinstance(event, events.TraceDropped) and not event.cut for event in journaled)
    assert '{"str": ["/model.py", 7]}' in text and '"torch_version"' in text
    kept = {n for n in range(20) if f'"frame_id": {n},' in text}
    assert kept == {n for n in range(20) if f"{n}/0" not in dropped} and {1, 19} <= kept
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 60_000
    assert [path.name[0] for path in tmp_path.iterdir()] == ["d"]  # no draft is left


def test_a_compile_above_the_limit_is_cut(tmp_path: Path, journaled: list[Any]) -> None:
    """The next compile is recorded again, in its place."""
    handler = TraceFile(str(tmp_path), 60_000, Lines())
    for _ in range(40):
        handler.handle(of_compile(0, os.urandom(4000).hex()))
    assert [event.cut for event in journaled] == ["0/0"]
    handler.handle(of_compile(0, compilation_metrics={}))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 70_000
    handler.handle(of_compile(1, "the next"))
    assert "the next" in read(tmp_path) and journaled[-1].cids == ["0/0"]


def test_a_full_disk_ends_the_trace(
    tmp_path: Path, journaled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program sees no error, the journal has one, and what was written can be read."""
    handler = TraceFile(str(tmp_path), 10**6, Lines())
    handler.handle(of_compile(0, "written"))

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        handler.handle(of_compile(0, "lost"))
    handler.handle(of_compile(1, "lost too"))
    handler.close()
    assert read(tmp_path).endswith("written\n")
    (event,) = journaled
    assert event.records == "TORCH_TRACE" and "No space left" in event.problem


def test_the_parts_of_a_cache_key_are_written_once(tmp_path: Path, journaled: list[Any]) -> None:
    """Torch writes them to an artifact too, which keeps them."""
    handler = TraceFile(str(tmp_path), 10**6, Lines())
    args = {"key": "f", "components": [f"[a] config[{n}]: ]" for n in range(500)], "time": 1}
    payload = json.dumps({"name": "fx_graph_cache_miss", "args": args}, indent=0)
    handler.handle(of_compile(0, payload, chromium_event={}, has_payload="old"))
    handler.handle(of_compile(0, payload, artifact={}, has_payload="old"))
    _, event, artifact = re.findall(r"^[^\t].*\n(?:\t.*\n)*", read(tmp_path), re.MULTILINE)
    heads, payloads = [], []
    for text in (event, artifact):
        head, *lines = text.rstrip("\n").split("\n\t")
        heads.append(json.loads(head)["has_payload"])
        payloads.append("\n".join(lines))
    assert payloads[1] == payload and "config" not in payloads[0]
    assert heads == [hashlib.md5(payloads[0].encode()).hexdigest(), "old"]
    assert json.loads(payloads[0])["args"]["time"] == 1 and not journaled
