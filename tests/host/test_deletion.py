"""Nothing is deleted outside the folder that the caller names."""

from __future__ import annotations

import ast
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.host.system import deletion
from tests.support.environments import ROOT
from tests.support.examples import examples

PARTS = st.sampled_from(["..", ".", "a", "b", "out", "link", "up", "/", "", "loop", "file"])


def _tree(folder: Path) -> Path:
    """Create a folder ``out`` with links that lead out of it, beside files that have to stay."""
    out = folder / "out"
    (out / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b").mkdir(parents=True)
    for folder_inside in (
        folder,
        folder / "a",
        folder / "a" / "b",
        out,
        out / "a",
        out / "a" / "b",
    ):
        (folder_inside / "file").write_text("x")
    (out / "link").symlink_to(folder / "a")
    (out / "up").symlink_to("..")
    (out / "loop").symlink_to("loop")
    return out


def _outside(folder: Path) -> set[str]:
    return {
        str(p) for p in folder.rglob("*") if p != folder / "out" and folder / "out" not in p.parents
    }


@settings(max_examples=examples(100))
@given(st.lists(PARTS, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_whatever_the_path_nothing_outside_is_deleted(
    parts: list[str], is_absolute: bool, is_empty: bool
) -> None:
    """Absolute paths, ``..`` and links in any order delete only files inside the folder, and never
    the folder itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = _tree(Path(folder))
        before = _outside(Path(folder))
        way = "/".join(parts)
        path = Path(folder) / way.lstrip("/") if is_absolute else out / way
        (deletion.delete_empty_folder if is_empty else deletion.delete_path)(path, inside=out)
        assert _outside(Path(folder)) == before
        assert out.is_dir() and (Path(folder) / "a" / "b" / "file").exists()


def test_a_link_is_deleted_and_not_its_target(tmp_path: Path) -> None:
    """A link to a folder outside is deleted and the folder stays. A path through the link is
    refused.
    """
    out = _tree(tmp_path)
    assert not deletion.delete_path(out / "link" / "file", inside=out)
    assert deletion.delete_path(out / "link", inside=out) and not (out / "link").is_symlink()
    assert (tmp_path / "a" / "b" / "file").exists()
    assert deletion.delete_path(out / "a", inside=out) and not (out / "a").exists()
    assert deletion.delete_path(out / "nothing", inside=out)
    os.mkfifo(out / "pipe")
    assert deletion.delete_path(out / "pipe", inside=out) and not (out / "pipe").exists()


def _deleting(path: Path) -> list[str]:
    """Return the calls in a file that delete something themselves."""
    names = {"unlink", "rmtree", "rmdir", "remove", "removedirs"}
    calls = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.Attribute, ast.Name)):
            continue
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        receiver = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
        if name in names and (name != "remove" or receiver == "os"):  # a list also has remove
            calls.append(f"{path.relative_to(ROOT)}:{node.lineno} {receiver}.{name}")
    return calls


def test_one_module_deletes() -> None:
    """host and cli delete through deletion.py. Only the guardian, which runs independently with the
    standard library, deletes by itself.
    """
    allowed = {"deletion.py", "guardian.py"}
    calls = [
        call
        for package in ("host", "cli")
        for path in sorted((ROOT / "reprokit" / package).rglob("*.py"))
        if path.name not in allowed
        for call in _deleting(path)
    ]
    assert not calls, calls
