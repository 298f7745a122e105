"""A process to attach to is found, and the answer of gdb becomes an address or a reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import find_process
from reprokit.host.attach.inside import gdb_calls, pending_call
from reprokit.host.attach.inside.injection import CannotRunInside
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
    """gdb maps a page, adds a call with its address, and unmaps it."""
    (gdb / "answer").write_text("[New LWP 8]\npage 0x7f12a000\nadded 0\n[Inferior 1 detached]\n")
    caller = gdb_calls.GdbCaller(4242)
    assert caller.map_page() == 0x7F12A000
    words = (gdb / "words").read_text().splitlines()
    assert words[:3] == ["-p", "4242", "-batch"] and words[-1] == "detach"
    assert caller.add_call(0x7F12A000, False)
    assert "PyRun_SimpleString, (void*)0x7f12a000)" in (gdb / "words").read_text()
    caller.unmap_page(0x7F12A000)
    assert "munmap)(0x7f12a000, 4096)" in (gdb / "words").read_text()


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
        (
            "Couldn't write extended state status: Bad address.\n",
            "this version of gdb cannot call a function on this processor",
        ),
        ("page (nil)\n", "gdb could not add the call: page (nil)"),
    ],
)
def test_a_refusal_of_gdb_has_its_reason(gdb: Path, answer: str, why: str) -> None:
    """What gdb prints instead of an address becomes a reason that a person can use."""
    (gdb / "answer").write_text(answer)
    with pytest.raises(CannotRunInside) as refusal:
        gdb_calls.GdbCaller(4242).map_page()
    assert str(refusal.value) == why


def test_a_full_queue_of_pending_calls_is_no_added_call(gdb: Path) -> None:
    """Python returns -1."""
    (gdb / "answer").write_text("added -1\n")
    assert not gdb_calls.GdbCaller(4242).add_call(0x7F12A000, False)


def test_a_program_without_symbols_of_python_is_refused() -> None:
    """The reason names the symbol, and an interpreter that has it."""
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            assert wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("sleep"))
            with pytest.raises(CannotRunInside, match="no symbol Py_AddPendingCall"):
                pending_call.PendingCall(process.pid)
        finally:
            process.kill()


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
