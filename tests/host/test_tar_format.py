"""The strict reader accepts tarballs of our writers, of this version and of earlier ones, and
nothing else.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import PrivateNames, Redactor
from reprokit.core.shared.errors import BadInput
from reprokit.host.pack import reader, tar_format, writer
from tests.support.examples import examples

NAMES = st.text(st.characters(codec=None), max_size=150) | st.lists(
    st.sampled_from(
        ["a", "..", ".", "", "é", "\n", "\x1b[31m", "\udc80", "~", "b" * 90, "c.json", "\\", " "]
    ),
    max_size=8,
).map("/".join)
QUICK = settings(
    max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def whole(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return ``files`` with a manifest that matches them."""
    rows = {n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    return {"manifest.json": json.dumps({"schema": 1, "files": rows}).encode(), **files}


def by_tarfile(path: Path, files: dict[str, bytes], form: int, **more: Any) -> Path:
    """Write a tarball as the writer of earlier versions did, with ``form`` pax."""
    with tarfile.open(path, "w:gz", format=form) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), 0o644, 0
            for key, value in more.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return path


@QUICK
@given(files=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6))
def test_a_written_pack_can_be_read(files: dict[str, bytes], tmp_path: Path) -> None:
    """Whatever file names a target uses, they become names that a pack accepts, and no file is
    lost.
    """
    canonical = {tar_format.canonical_name(name): data for name, data in files.items()}
    assert len(canonical) == len(files)
    assert all(
        tar_format.is_safe_name(n) and n.isascii() and len(n) <= tar_format.MAX_NAME_CHARS
        for n in canonical
    )
    assert all(tar_format.canonical_name(n) == n for n in canonical)
    if (
        any(a != b and b.startswith(f"{a}/") for a in canonical for b in canonical)
        or "manifest.json" in canonical
    ):
        return
    path = tmp_path / "p.tar.gz"
    path.write_bytes(tar_format.build_tar(whole(canonical).items()))
    assert {
        n: d for n, d in reader.read_pack(path).files.items() if n != "manifest.json"
    } == canonical
    with tarfile.open(path) as tar:  # and other tools can read it
        assert set(tar.getnames()) == {"manifest.json", *canonical}


@pytest.mark.parametrize(
    "name",
    [
        "logs/x.txt",
        f"{'a' * 60}/{'b' * 60}.txt",
        "graphs/ébène/ü.py",
        f"{'é' * 90}/漢.json",
        "with space.txt",
    ],
)
def test_packs_of_earlier_versions_can_be_read(name: str, tmp_path: Path) -> None:
    """Long names and names beyond ASCII are in a pax header, which may contain a name and nothing
    else.
    """
    tarball = by_tarfile(tmp_path / "p.tar.gz", whole({name: b"x" * 700}), tarfile.PAX_FORMAT)
    assert reader.read_pack(tarball).files[name] == b"x" * 700


@pytest.mark.parametrize(
    ("form", "more"),
    [
        (tarfile.GNU_FORMAT, {}),
        (tarfile.PAX_FORMAT, {"pax_headers": {"comment": "x"}}),
        (tarfile.PAX_FORMAT, {"pax_headers": {"path": "other", "size": "7"}}),
        (tarfile.PAX_FORMAT, {"pax_headers": {"GNU.sparse.realsize": str(1 << 40)}}),
        (tarfile.PAX_FORMAT, {"uname": "é" * 40}),
        (tarfile.PAX_FORMAT, {"mtime": 1.5}),
    ],
)
def test_other_headers_are_refused(form: int, more: dict[str, Any], tmp_path: Path) -> None:
    """GNU headers, and pax headers with more than a name, are refused."""
    tarball = by_tarfile(tmp_path / "p.tar.gz", whole({"a" * 120: b"x"}), form, **more)
    with pytest.raises(BadInput, match="refused"):
        reader.read_pack(tarball)


@settings(QUICK, max_examples=examples(300))
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 4095), st.binary(min_size=1, max_size=12)), min_size=1, max_size=3
    ),
    cut=st.integers(0, 4096) | st.none(),
)
def test_a_damaged_tarball_is_the_same_or_refused(
    edits: list[tuple[int, bytes]], cut: int | None, tmp_path: Path
) -> None:
    """Any change of any bytes, including headers, either does not change the result or is
    refused.
    """
    files = whole({"a.txt": b"x" * 600, "b/c.json": b"{}"})
    raw = bytearray(gzip.decompress(tar_format.build_tar(files.items())))
    for offset, data in edits:
        raw[offset : offset + len(data)] = data
    path = tmp_path / "p.tar.gz"
    path.write_bytes(gzip.compress(bytes(raw[:cut]), 1))
    try:
        assert reader.read_pack(path).files == files
    except BadInput as problem:
        assert len(str(problem)) < 1_000


@settings(QUICK, max_examples=examples(300))
@given(offset=st.integers(0, 400), data=st.binary(min_size=1, max_size=8))
def test_a_damaged_gzip_stream_is_the_same_or_refused(
    offset: int, data: bytes, tmp_path: Path
) -> None:
    """A change of the compressed bytes has the same two results."""
    files = whole({"a.txt": b"x" * 600})
    raw = bytearray(tar_format.build_tar(files.items()))
    raw[offset : offset + len(data)] = data
    path = tmp_path / "p.tar.gz"
    path.write_bytes(raw)
    with contextlib.suppress(BadInput):
        assert reader.read_pack(path).files == files


@pytest.mark.parametrize(
    "names",
    [("graphs/0002", "graphs/0002/a.py"), ("graphs/0002/a.py", "graphs/0002"), ("a/b/c", "a")],
)
def test_a_file_that_is_also_a_folder_is_refused(names: tuple[str, str], tmp_path: Path) -> None:
    """No folder on a disk could have both."""
    path = tmp_path / "p.tar.gz"
    path.write_bytes(tar_format.build_tar(whole(dict.fromkeys(names, b"x")).items()))
    with pytest.raises(BadInput, match="twice"):
        reader.read_pack(path)


def test_a_written_pack_stays_within_the_limits_of_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence that compresses well and a file with an invalid name give a pack that this reader
    reads.
    """
    monkeypatch.setattr(writer, "MAX_UNPACKED_BYTES", 3_000_000)
    (tmp_path / "logs").mkdir()
    for number in range(5):
        (tmp_path / "logs" / f"{number}.txt").write_text("line\n" * 300_000)
    (tmp_path / "logs" / "a\nb\x1b[31m.txt").write_text("odd")
    draft = writer.gather_files(tmp_path, Redactor(PrivateNames()))
    path = tmp_path / "p.tar.gz"
    path.write_bytes(writer.build_tarball(draft, lambda contents, trimmed, hidden: "readme"))
    pack = reader.read_pack(path)
    assert sum(pack.sizes.values()) < 4_000_000 and pack.manifest["trimmed"]
    assert b"odd" in pack.files.values()
