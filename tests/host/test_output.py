"""The output of a target is kept up to a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.host.run import output
from reprokit.host.run.output import BoundedLog


@pytest.mark.parametrize("total", [0, 50, 100, 101, 130, 150, 199, 1000, 1037])
@pytest.mark.parametrize("step", [1, 7, 30])
def test_head_and_tail_are_kept(
    total: int, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last whole lines are kept in order, with the number of bytes that were cut
    between them.
    """
    monkeypatch.setattr(output, "HEAD_BYTES", 100)
    monkeypatch.setattr(output, "TAIL_CHUNK_BYTES", 40)
    data = bytes(10 if i % 9 == 8 else 33 + i % 89 for i in range(total))
    kept = BoundedLog(tmp_path / "stdout.txt")
    for start in range(0, total, step):
        kept.write(data[start : start + step])
    kept.close()
    text = (tmp_path / "stdout.txt").read_bytes()
    head, _, tail = text.partition(b"\n<<cut ")
    if tail:
        gone, _, tail = tail.partition(b" bytes>>\n")
        assert len(head) + int(gone) + len(tail) == total
        assert data.startswith(head) and data.endswith(tail)
        assert len(head) >= 100 - step - 9 and len(tail) >= 40 - step - 9
        assert head.endswith(b"\n") and data[: -len(tail)].endswith(b"\n")
    else:
        assert text == data
    assert len(text) < 100 + 80 + 2 * step + 40
    assert [p.name for p in tmp_path.iterdir()] == ["stdout.txt"]


def test_no_part_of_a_word_is_kept_beside_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word without an end, which may be a secret, is cut whole."""
    monkeypatch.setattr(output, "HEAD_BYTES", 100)
    monkeypatch.setattr(output, "TAIL_CHUNK_BYTES", 40)
    kept = BoundedLog(tmp_path / "stdout.txt")
    for part in (*[b"x" * 20] * 48, b"the last two lines,\n", b"which are separate\n"):
        kept.write(part)
    kept.close()
    text = (tmp_path / "stdout.txt").read_bytes()
    assert text == b"\n<<cut 960 bytes>>\nthe last two lines,\nwhich are separate\n"
