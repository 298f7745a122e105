"""An untrusted file takes at most one second and 200 MB to read, and gives a result or a one-line
error.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from reprokit.core.judge.signature import ALGORITHM
from tests.support import damaged_files, warm_processes
from tests.support.environments import ROOT, clean_environ
from tests.support.reprokit_calls import CallResult

SHOW_MB, SHOW_S = 200, 1.0
OTHER_MB, OTHER_S = 400, 3.0
VERDICT = {
    "kind": "exception",
    "phase": "codegen",
    "cause": None,
    "reason": "it was raised",
    "responsible": "torch",
}
SIGNATURE = {"id": "0" * 12, "title": "exception: codegen | KeyError", "algorithm": ALGORITHM}


def header(name: bytes, size: int, kind: bytes = b"0", size_text: bytes | None = None) -> bytes:
    """Return a header of a tarball, which may be wrong."""
    info = tarfile.TarInfo("x")
    info.size = min(size, 0o77777777777)
    head = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    head[:100] = name[:100].ljust(100, b"\0")
    head[156:157] = kind
    if size_text is not None:
        head[124:136] = size_text
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def packed(**more: bytes) -> bytes:
    """Return a pack with these files; ``__`` in a name means a dot."""
    rows = {name.replace("__", "."): data for name, data in more.items()}
    documents = {
        "verdict.json": json.dumps(VERDICT).encode(),
        "signature.json": json.dumps(SIGNATURE).encode(),
    }
    return damaged_files.build_pack({**documents, **rows})


def report(**more: object) -> bytes:
    return packed(report__json=json.dumps({"reason": "it was raised", **more}).encode())


def pax(size: int, repeats: int = 1, kind: bytes = b"x") -> bytes:
    record = b" path=" + b"a" * size + b"\n"
    text = str(len(record) + len(str(len(record)))).encode() + record
    return (header(b"x", len(text), kind) + filled(text)) * repeats + header(b"a", 1) + filled(b"a")


def zipped(data: bytes, level: int = 6) -> bytes:
    return gzip.compress(data + bytes(1024), level, mtime=0)


def zeros(megabytes: int) -> bytes:
    """Return a file of zeros whose stream is truncated."""
    head, block = header(b"zeros", megabytes << 20), bytes(1 << 20)
    engine = zlib.compressobj(6, wbits=-15)
    parts = [engine.compress(head) + engine.flush(zlib.Z_FULL_FLUSH)]
    # after a full flush, the same input gives the same output
    parts += [engine.compress(block) + engine.flush(zlib.Z_FULL_FLUSH)] * megabytes
    check = zlib.crc32(head)
    for _ in range(megabytes):
        check = zlib.crc32(block, check)
    size = len(head) + (megabytes << 20)
    return b"".join(
        [b"\x1f\x8b\x08\0\0\0\0\0\0\3", *parts, engine.flush(), struct.pack("<LL", check, size)]
    )


def many(count: int, name: Callable[[int], bytes]) -> bytes:
    return zipped(b"".join(header(name(n), 0) for n in range(count)), 1)


def long_names(count: int) -> bytes:
    rows = []
    for n in range(count):
        record = b" path=" + b"/".join([b"%05d" % n, *[b"b" * 60] * 12]) + b"\n"
        text = str(len(record) + 3).encode() + record
        rows.append(header(b"x", len(text), b"x") + filled(text) + header(b"a", 0))
    return zipped(b"".join(rows), 1)


def files(count: int) -> bytes:
    return damaged_files.build_pack({f"{n:05d}/{'x' * 60}": b"" for n in range(count)})


STREAMS: dict[str, Callable[[], bytes]] = {
    "long pax header": lambda: zipped(pax(1 << 22)),
    "pax header that says it is long": lambda: zipped(header(b"x", 8 << 30, b"x") + bytes(1 << 20)),
    "global pax header": lambda: zipped(pax(100, 1, b"g")),
    "many pax headers": lambda: zipped(pax(10, 5000)),
    "GNU long name": lambda: zipped(header(b"././@LongLink", 4 << 30, b"L") + bytes(50 << 20)),
    "GNU long names in a row": lambda: zipped(
        (header(b"././@LongLink", 2, b"L") + filled(b"a\0")) * 5000
    ),
    "sparse": lambda: zipped(header(b"a", 512, b"S") + bytes(512)),
    "size of a terabyte in base 256": lambda: zipped(
        header(b"a", 1, size_text=b"\x80" + struct.pack(">3xQ", 1 << 40))
    ),
    "negative size": lambda: zipped(header(b"a", 1, size_text=b"\xff" * 12)),
    "size that is no number": lambda: zipped(header(b"a", 1, size_text=b"        -1 \0")),
    "bomb": lambda: zeros(1000),
    "nearly a bomb": lambda: zeros(190),
    "60,000 empty files": lambda: many(60_000, lambda n: b"%d" % n),
    "one name 60,000 times": lambda: many(60_000, lambda n: b"a"),
    "names of folders in folders": lambda: many(
        19_000, lambda n: b"/".join([b"%d" % n, *[b"a"] * 14])
    ),
    "19,000 long names": lambda: long_names(19_000),
    "a million gzip members": lambda: gzip.compress(b"", 9, mtime=0) * 1_000_000,
    "empty deflate blocks": lambda: b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\0\0\0\xff\xff" * 6_000_000,
    "long gzip name": lambda: b"\x1f\x8b\x08\x08\0\0\0\0\0\3" + b"a" * (30 << 20),
    "random": lambda: random.Random(1).randbytes(20 << 20),
    "random, stored": lambda: gzip.compress(
        header(b"a", 50 << 20) + random.Random(1).randbytes(50 << 20), 0
    ),
    "something after the end": lambda: zipped(header(b"a", 0) + bytes(1024) + b"x" * 512),
    "zeros after the end": lambda: zipped(bytes(100 << 20)),
    "19,000 files": lambda: files(19_000),
    "a name with marks": lambda: zipped(header(b"a\x1b[31m", 0)),
    "manifest of 300,000 values": lambda: zipped(
        header(
            b"manifest.json", len(text := b'{"files":{},"trimmed":[' + b'"",' * 300_000 + b'""]}')
        )
        + filled(text)
    ),
    "300,000 rows of evidence": lambda: report(evidence=["x"] * 300_000),
    "150,000 rows of evidence": lambda: report(evidence=["x"] * 150_000),
    "rows of marks": lambda: report(
        evidence=["\u202e\x1b[31m" * 5_000] * 100, path=["é\u200b" * 10_000] * 100
    ),
    "one long row": lambda: report(reason="\u202ea" * 1_000_000),
    "points": lambda: report(timeline={"series": [{"name": "a", "points": [[1, 2]] * 50_000}]}),
    "deep": lambda: packed(report__json=b'{"reason":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
    "150,000 objects": lambda: packed(report__json=b'{"reason":[' + b'{"":0},' * 90_000 + b"0]}"),
    "a number of 4 MB": lambda: packed(report__json=b'{"reason":' + b"9" * (4 << 20) + b"}"),
    "wide characters": lambda: packed(
        report__json=json.dumps({"reason": "\U0001f600" * 2_000_000}, ensure_ascii=False).encode()
    ),
}
LONG_STREAMS = (
    *("nearly a bomb", "19,000 files", "60,000 empty files", "one name 60,000 times"),
    *("names of folders in folders", "random, stored"),
)
"""Streams of the long tier. A quick test reads a stream of a similar kind for each of them."""


def limited(*words: object, megabytes: int, seconds: float) -> CallResult:
    """Call reprokit under limits that begin in a process that has imported it."""
    row = [str(megabytes), str(seconds), *map(str, words)]
    done = warm_processes.run_command_line(
        row, ROOT, clean_environ(), 300, "tests.support.limited_call"
    )
    assert "Traceback" not in done.stderr and "defect" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
    assert done.returncode != 2 or (done.stderr.count("\n") == 1 and len(done.stderr) < 1_200), (
        done.stderr
    )
    assert not (damaged_files.CONTROL - {"\n", "\t"}) & set(done.stdout + done.stderr)
    return CallResult(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LONG_STREAMS else ()) for n in STREAMS]
)
def test_any_file_takes_at_most_a_second_and_little_memory(name: str, tmp_path: Path) -> None:
    """show needs at most one second of CPU time and 200 MB and prints at most some megabytes; issue
    and replay are limited too.
    """
    pack = tmp_path / "p.tar.gz"
    pack.write_bytes(STREAMS[name]())
    for words in (
        ("show", pack),
        ("show", pack, "--json"),
        ("show", pack, "--file", "report.json"),
    ):
        assert len(limited(*words, megabytes=SHOW_MB, seconds=SHOW_S).out) < 30_000_000
    for words in (("issue", pack), ("replay", pack, "--python", "/no/such")):
        assert len(limited(*words, megabytes=OTHER_MB, seconds=OTHER_S).out) < 100_000
