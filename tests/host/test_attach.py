"""A process to attach to is found, and the answer of gdb becomes an address or a reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import find_process, pending_call
from reprokit.host.attach.injection import CannotRunInside
from tests.support.processes import wait_until

FAKE_GDB = """#!/bin/sh
here=$(dirname "$0")
printf '%s\\n' "$@" > "$here/words"
cat "$here/answer"
"""


@pytest.fixture
def gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a program ``gdb`` that prints the file ``answer`` of the returned folder, and writes
    its arguments to ``words``.
    """
    (tmp_path / "gdb").write_text(FAKE_GDB)
    (tmp_path / "gdb").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def test_a_pending_call_has_a_page_of_its_own(gdb: Path) -> None:
    """The address that gdb prints is that of the text of the call, and the program can unmap it."""
    (gdb / "answer").write_text("[New LWP 8]\npage 0x7f12a000\nadded 0\n[Inferior 1 detached]\n")
    call = pending_call.PendingCall(4242)
    words = (gdb / "words").read_text().splitlines()
    assert words[:3] == ["-p", "4242", "-batch"] and words[-1] == "detach"
    assert "munmap(ctypes.c_void_p(0x7f12a000), ctypes.c_size_t(4096))" in call.clean_up
    call.start(gdb / "program.py")
    assert "restore" in (words := (gdb / "words").read_text()) and " binary 0x7f12a000" in words
    assert repr(str(gdb / "program.py")).encode() in (gdb / "program.call").read_bytes()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("ptrace: Operation not permitted.\n", "gdb may not attach to the process"),
        ("Could not attach to process 7.\n", "gdb may not attach to the process"),
        (
            'No symbol "Py_AddPendingCall" in current context.\n',
            "the interpreter has no symbol Py_AddPendingCall: it is stripped; use the python of a"
            " distribution, of conda or of uv",
        ),
        ("warning: x\n  it  broke\n", "gdb could not add the call: warning: x it broke"),
        ("page (nil)\n", "gdb could not add the call: page (nil)"),
    ],
)
def test_a_refusal_of_gdb_has_its_reason(gdb: Path, answer: str, why: str) -> None:
    """What gdb prints instead of an address becomes a reason that a person can use."""
    (gdb / "answer").write_text(answer)
    with pytest.raises(CannotRunInside) as refusal:
        pending_call.PendingCall(4242)
    assert str(refusal.value) == why


def test_a_call_that_python_does_not_add_is_refused(gdb: Path) -> None:
    """If the queue of pending calls is full, the page is unmapped, and the reason is that of
    gdb.
    """
    (gdb / "answer").write_text("page 0x7f12a000\nadded -1\n")
    call = pending_call.PendingCall(4242)
    with pytest.raises(CannotRunInside, match=r"gdb could not add the call: .* added -1"):
        call.start(gdb / "program.py")
    assert "munmap)(0x7f12a000, 4096)" in (gdb / "words").read_text()


def test_a_process_that_ends_during_the_search_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a readable command line does not match, and the others are found."""
    seconds = "98765.4"
    gone, found = (subprocess.Popen(["sleep", seconds]) for _ in range(2))
    try:
        processes = [psutil.Process(gone.pid), psutil.Process(found.pid)]
        # a process has no command line until it has started its program
        assert wait_until(lambda: all(seconds in " ".join(p.cmdline()) for p in processes))
        gone.kill()
        gone.wait()
        monkeypatch.setattr(find_process.psutil, "process_iter", lambda: processes)
        assert find_process.find_by_name(seconds) == found.pid
        monkeypatch.setattr(find_process.psutil, "process_iter", lambda: processes[:1])
        with pytest.raises(BadInput, match="there is no process whose command line contains"):
            find_process.find_by_name(seconds)
    finally:
        for process in (gone, found):
            process.kill()
            process.wait()
