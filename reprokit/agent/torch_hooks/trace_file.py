"""Write what torch traces of the compiles of this process, compressed and bounded.

The file has members of gzip: the records of one compile that follow each other are a member, so
that those of a compile can be dropped without a second compression. Each record is flushed, so that
SIGKILL loses none that was written.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import tempfile
import zlib
from dataclasses import dataclass
from typing import IO, Any

from ...core.shared.contract import events
from ..record import collectives, journal

LEVEL = 1
"""Of 1 to 9. For traces of torch 2.13, 6 saves a further 15 % and takes twice the time."""
_COMPONENTS, _END_OF_LIST = '"components": [', "\n]"
_MIN_COMPONENTS_CHARS = 4096
"""Shorter lists stay where they are."""
_ELSEWHERE = '"components": "see the artifact fx_graph_cache_* of this compile"'
_HEAD = "head"
"""Instead of a compile: the member at the start of a file from which compiles were dropped."""


@dataclass
class _Member:
    """Records of one compile that follow each other, and the bytes that they take in the file."""

    cid: str
    size: int = 0


class TraceFile(logging.Handler):
    """Writes the records of torch to one file of each process.

    If the file has more bytes than its share of ``max_bytes``, which the files of a run share
    equally, the oldest complete compiles are dropped until it has half of that. If this is not
    enough, the rest of the current compile is not written. Both are journaled.
    """

    def __init__(self, folder: str, max_bytes: int, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._folder, self._max_bytes = folder, max_bytes
        self._fd = -1
        self._has_failed = self._is_noted = False
        self._start_process()

    def _start_process(self) -> None:
        if self._fd >= 0:  # that of the parent, after a fork
            os.close(self._fd)
        self._pid, self._fd, self._path = os.getpid(), -1, ""
        self._engine: Any = None
        self._members: list[_Member] = []
        self._of_no_compile: list[bytes] = []
        """The version of torch and the names of files, which the records refer to by number."""
        self._complete: set[str] = set()
        self._size, self._share = 0, self._max_bytes
        self._is_cut = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. The program does not see an error, such as a full disk."""
        if self._has_failed:
            return
        try:
            if self._pid != os.getpid():
                self._start_process()
            if self._fd < 0:
                self._open()
            record = _without_copies(record)
            metadata = record.__dict__.get("metadata") or {}
            self._append(
                _cid_of(metadata), f"{self.format(record)}\n".encode("utf-8", "replace"), metadata
            )
        except Exception as problem:
            self._has_failed = isinstance(problem, OSError)  # what follows could not be read
            if not self._is_noted:
                event = events.AgentProblem(records="TORCH_TRACE", problem=repr(problem))
                journal.write_event(event)
            self._is_noted = True

    def close(self) -> None:
        """End the member; a later record begins a new one."""
        self.acquire()
        try:
            if self._pid == os.getpid() and not self._has_failed:
                self._end_member()
        except OSError:  # the file ends where the disk was full
            self._has_failed = True
        finally:
            self.release()
        super().close()

    def _open(self) -> None:
        dist = collectives.distributed_module()
        rank = f"rank_{dist.get_rank()}_" if dist is not None else ""
        self._fd, self._path = tempfile.mkstemp(
            ".log.gz", f"dedicated_log_torch_trace_{rank}", self._folder
        )
        self._append("", version_line().encode(), {"torch_version": ""})

    def _append(self, cid: str, data: bytes, metadata: dict[str, Any]) -> None:
        if "compilation_metrics" in metadata:
            self._complete.add(cid)
        if not cid and ("str" in metadata or "torch_version" in metadata):
            self._of_no_compile.append(data)
        if cid and (self._engine is None or cid != self._members[-1].cid):
            self._begin_member(cid)
        elif self._engine is None:
            self._begin_member(self._members[-1].cid if self._members else "")
        if not self._is_cut:
            self._write(self._engine.compress(data) + self._engine.flush(zlib.Z_SYNC_FLUSH))
            if self._size > self._share:
                self._drop_oldest()

    def _begin_member(self, cid: str) -> None:
        self._end_member()
        self._engine = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        self._members.append(_Member(cid))
        self._share = self._max_bytes // max(1, len(os.listdir(self._folder)))
        self._is_cut = False

    def _end_member(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            self._write(engine.flush())

    def _write(self, data: bytes) -> None:
        while data:
            written = os.write(self._fd, data)
            self._size += written
            self._members[-1].size += written
            data = data[written:]

    def _drop_oldest(self) -> None:
        current = self._members[-1].cid
        self._end_member()
        sizes: dict[str, int] = {}
        for member in self._members:
            sizes[member.cid] = sizes.get(member.cid, 0) + member.size
        left, dropped = self._size, list[str]()
        for cid, size in sizes.items():
            if left > self._share // 2 and cid in self._complete and cid != current:
                dropped.append(cid)
                left -= size
        if dropped:
            self._rewrite(frozenset(dropped))
        self._begin_member(current)
        self._is_cut = self._size > self._share
        cut = current if self._is_cut else ""
        journal.write_event(events.TraceDropped(cids=dropped, cut=cut, limit=self._max_bytes))

    def _rewrite(self, dropped: frozenset[str]) -> None:
        """Write the members of the other compiles to a new file, which takes the place of this."""
        engine = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        head = engine.compress(b"".join(self._of_no_compile)) + engine.flush()
        folder, name = os.path.split(self._path)
        draft = os.path.join(folder, f".{name}")
        try:
            with open(draft, "wb") as new, open(self._path, "rb") as old:
                new.write(head)
                for member in self._members:
                    if member.cid == _HEAD or member.cid in dropped:
                        old.seek(member.size, os.SEEK_CUR)
                    else:
                        _copy(old, new, member.size)
            os.replace(draft, self._path)
        except OSError:  # the disk may be full, and the file is as it was
            os.unlink(draft)
            raise
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        left_out = {_HEAD, *dropped}
        kept = [member for member in self._members if member.cid not in left_out]
        self._members = [_Member(_HEAD, len(head)), *kept]
        self._size = sum(member.size for member in self._members)


def _copy(old: IO[bytes], new: IO[bytes], size: int) -> None:
    while size > 0 and (chunk := old.read(min(size, 1 << 20))):
        new.write(chunk)
        size -= len(chunk)


def version_line() -> str:
    """Return the record with the version of torch, as the first handler of torch writes it."""
    import torch

    return record_line("torch_version", json.dumps({"pytorch_version": torch.__version__}))


def record_line(name: str, payload: str, key: tuple[object, object] | None = None) -> str:
    """Return a record of a compile, or of none, as the formatter of torch writes it."""
    metadata: dict[str, object] = {"artifact": {"name": name, "encoding": "string"}}
    if key is not None:
        metadata |= {"frame_id": key[0], "frame_compile_id": key[1]}
    lines = "".join(f"\t{line}\n" for line in payload.splitlines())
    return f"V0101 00:00:00.000000 {os.getpid()} reprokit:1] {json.dumps(metadata)}\n{lines}"


def _cid_of(metadata: dict[str, Any]) -> str:
    """Return the id of the compile of a record, as torch writes it; empty if it is of none."""
    autograd = metadata.get("compiled_autograd_id")
    numbers = (metadata.get("frame_id"), metadata.get("frame_compile_id"))
    parts = [] if autograd is None else [f"!{autograd}"]
    return "/".join([*parts, *(str(number) for number in numbers if number is not None)])


def _without_copies(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record of a Chromium event without the parts of a cache key.

    They are all settings of Inductor, 70 kB for each compile. Torch 2.13 writes them three times:
    in two events, and in the artifact ``fx_graph_cache_*`` of the same compile, which keeps them.
    """
    fields = record.__dict__
    payload = fields.get("payload")
    if not isinstance(payload, str) or "chromium_event" not in fields.get("metadata", ()):
        return record
    start = payload.find(_COMPONENTS) if len(payload) > _MIN_COMPONENTS_CHARS else -1
    end = payload.find(_END_OF_LIST, start)
    if start < 0 or end < 0:
        return record
    record = copy.copy(record)
    text = payload[:start] + _ELSEWHERE + payload[end + len(_END_OF_LIST) :]
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    record.__dict__.update(payload=text, metadata={**fields["metadata"], "has_payload": digest})
    return record
