"""A pack from a stranger is hostile."""

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

from ..conftest import reprokit


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
    """A pack with an honest manifest for its plain files, unless another is given."""
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
    """Every way out of a folder is one clear line, and nothing is written."""
    pack = tarball(tmp_path / "p.tar.gz", HOSTILE[kind])
    done = reprokit("show", pack, cwd=tmp_path)
    assert done.status == 2
    assert "refused" in done.err and done.err.count("\n") == 1
    assert "\x1b" not in done.err
    assert sorted(os.listdir(tmp_path)) == ["p.tar.gz"]


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    """A second file must not hide behind the first one's checksum."""
    with pytest.raises(BadInput, match="twice"):
        reader.read_pack(tarball(tmp_path / "p.tar.gz", member("a"), member("a", data=b"y")))


def test_a_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    """A gigabyte of zeros is a megabyte of gzip; headers that lie do not help it."""
    path = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo("zeros")
    info.size = reader.MOST_UNPACKED_BYTES + 10
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(info.tobuf())
        chunk = bytes(1 << 20)
        for _ in range(reader.MOST_UNPACKED_BYTES // len(chunk) + 2):
            out.write(chunk)
    with pytest.raises(BadInput, match="refused"):
        reader.read_pack(path)


def test_a_stream_that_never_ends_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no header claims a size, the stream is counted."""
    monkeypatch.setattr(reader, "MOST_UNPACKED_BYTES", 1000)
    monkeypatch.setattr(reader, "MOST_FILES", 2)
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
def test_a_manifest_that_lies_is_refused(
    manifest: dict[str, object], match: str, tmp_path: Path
) -> None:
    """Sizes and checksums are believed only when they are true."""
    with pytest.raises(BadInput, match=match):
        reader.read_pack(tarball(tmp_path / "p.tar.gz", member("a"), manifest=manifest))


@pytest.mark.parametrize("cut", [0, 1, 10, 60, 150])
def test_a_pack_cut_short_is_refused(cut: int, tmp_path: Path) -> None:
    """Half a download is one clear line."""
    path = tarball(tmp_path / "p.tar.gz", member("a", data=os.urandom(400)))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(BadInput):
        reader.read_pack(path)


@pytest.mark.parametrize("kind", ["text", "absent", "folder", "tar without manifest"])
def test_what_is_no_pack_is_refused(kind: str, tmp_path: Path) -> None:
    """Any other file, or none, gets a line that says what a pack is."""
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
