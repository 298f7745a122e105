"""Which files of an Inductor cache are damaged."""

from __future__ import annotations

import _ctypes
import base64
import hashlib
from pathlib import Path

from reprokit.host.experiments import cache_files


def test_damaged_files_are_found_and_healthy_ones_are_not(tmp_path: Path) -> None:
    """An entry has the digest of its contents as its name, and a library is as long as its header
    says. Locks and other files are not examined.
    """
    content = b"an entry"
    name = base64.b32encode(hashlib.sha256(content).digest())[:51].decode().lower()
    entries = tmp_path / "fxgraph" / "ab" / "fab"
    entries.mkdir(parents=True)
    (entries / name).write_bytes(content)
    library = Path(_ctypes.__file__).read_bytes()
    (tmp_path / "cd").mkdir()
    (tmp_path / "cd" / "whole.main.so").write_bytes(library)
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "c.lock").touch()
    assert cache_files.damaged_files(tmp_path) == ()
    assert cache_files.stored_keys(tmp_path) == {"fx-graph": {"fab"}, "aot-autograd": set()}
    (entries / name).write_bytes(content[:3])
    (tmp_path / "cd" / "cut.main.so").write_bytes(library[: len(library) // 2])
    (tmp_path / "cd" / "empty.main.so").touch()
    (tmp_path / "cd" / "text.so").write_text("text" * 40)
    found = {file.name: (file.what, file.pattern) for file in cache_files.damaged_files(tmp_path)}
    assert found == {
        "cd/cut.main.so": ("it is truncated", "*.main.so"),
        "cd/empty.main.so": ("the file is empty", "*.main.so"),
        "cd/text.so": ("it is not a shared library", "*.so"),
        f"fxgraph/ab/fab/{name}": (
            "its contents do not match the digest in its name",
            "fxgraph/**/*",
        ),
    }
