"""A foreign pack may be hostile, and is then refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.pack import reader
from tests.support.reprokit_calls import reprokit


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"x"
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data


def tarball(
    path: Path, *members: tuple[tarfile.TarInfo, bytes], manifest: dict[str, object] | None = None
) -> Path:
    """Write a pack with a correct manifest for its plain files, unless ``manifest`` is passed."""
    files = {
        i.name: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()}
        for i, d in members
        if i.isreg()
    }
    text = json.dumps(manifest if manifest is not None else {"schema": 1, "files": files}).encode()
    with tarfile.open(path, "w:gz") as tar:
        for info, data in [member("manifest.json", data=text), *members]:
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return path


HOSTILE = {
    "parent": member("../evil"),
    "inner parent": member("a/../../evil"),
    "absolute": member("/etc/evil"),
    "backslash": member("a\\..\\evil"),
    "control characters": member("a\x1b[2Jb"),
    "symlink": member("link", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": member("hard", tarfile.LNKTYPE, "manifest.json"),
    "character device": member("dev", tarfile.CHRTYPE),
    "block device": member("dev", tarfile.BLKTYPE),
    "pipe": member("pipe", tarfile.FIFOTYPE),
    "folder": member("folder", tarfile.DIRTYPE),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_members_are_refused(kind: str, tmp_path: Path) -> None:
    """Every member that leads outside the folder gives a one-line error, and nothing is written."""
    pack = tarball(tmp_path / "p.tar.gz", HOSTILE[kind])
    done = reprokit("show", pack, cwd=tmp_path)
    assert done.status == 2
    assert "refused" in done.err and done.err.count("\n") == 1
    assert "\x1b" not in done.err
    assert sorted(os.listdir(tmp_path)) == ["p.tar.gz"]


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    """A second file with the same name would not match the first file's checksum."""
    with pytest.raises(BadInput, match="twice"):
        reader.read_pack(tarball(tmp_path / "p.tar.gz", member("a"), member("a", data=b"y")))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """A gigabyte of zeros compresses to a megabyte; it is refused even if the headers are wrong."""
    path = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo("zeros")
    info.size = reader.MAX_UNPACKED_BYTES + 10
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(info.tobuf())
        chunk = bytes(1 << 20)
        for _ in range(reader.MAX_UNPACKED_BYTES // len(chunk) + 2):
            out.write(chunk)
    with pytest.raises(BadInput, match="refused"):
        reader.read_pack(path)


def test_a_stream_that_never_ends_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the stream is counted even if no header states a size."""
    monkeypatch.setattr(reader, "MAX_UNPACKED_BYTES", 1000)
    monkeypatch.setattr(reader, "MAX_FILES", 2)
    path = tmp_path / "long.tar.gz"
    with gzip.open(path, "wb") as out:
        out.write(bytes(512) * 100)
        out.write(b"x" * 100_000)
    with pytest.raises(BadInput):
        reader.read_pack(path)


@pytest.mark.parametrize(
    ("manifest", "match"),
    [
        ({"schema": 1, "files": {}}, "does not agree"),
        ({"schema": 1, "files": {"a": {"size": 1, "sha256": "00"}}}, "does not agree"),
        ({"schema": 99, "files": {}}, "schema"),
        ({"schema": 1, "files": 3}, "cannot be read"),
        ([], "cannot be read"),
    ],
)
def test_a_wrong_manifest_is_refused(
    manifest: dict[str, object], match: str, tmp_path: Path
) -> None:
    """Sizes and checksums of the manifest are compared with the files."""
    with pytest.raises(BadInput, match=match):
        reader.read_pack(tarball(tmp_path / "p.tar.gz", member("a"), manifest=manifest))


@pytest.mark.parametrize("cut", [0, 1, 10, 60, 150])
def test_a_truncated_pack_is_refused(cut: int, tmp_path: Path) -> None:
    """A truncated download gives a one-line error."""
    path = tarball(tmp_path / "p.tar.gz", member("a", data=os.urandom(400)))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(BadInput):
        reader.read_pack(path)


@pytest.mark.parametrize("kind", ["text", "absent", "folder", "tar without manifest"])
def test_a_file_that_is_not_a_pack_is_refused(kind: str, tmp_path: Path) -> None:
    """Any other file, or no file, gives a one-line error that says what a pack is."""
    path = tmp_path / "p.tar.gz"
    if kind == "text":
        path.write_text("hello")
    elif kind == "folder":
        path.mkdir()
    elif kind == "tar without manifest":
        with tarfile.open(path, "w:gz") as tar:
            info, data = member("a")
            tar.addfile(info, io.BytesIO(data))
    done = reprokit("show", path)
    assert done.status == 2
    assert done.err.startswith("reprokit: ") and done.err.count("\n") == 1
