"""A guardian ends what is of its run, and nothing else: not by accident, and not without a run
id.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from reprokit.host.system import guardian, guardian_client, process_tree

SCRIPT = Path(guardian.__file__)
ASKS = (
    "import sys; sys.path.insert(0, sys.argv[1]); import guardian; print(guardian.Guardian(0,"
    " sys.argv[2]).victims())"
)


@pytest.mark.parametrize("run_id", ["", "x", "0" * 31, "0" * 33, "0" * 32 + "\n", "=" + "0" * 31])
def test_a_run_id_that_is_not_whole_is_refused(run_id: str) -> None:
    """An empty mark would be found in every environment."""
    with pytest.raises(ValueError, match="is no run id"):
        guardian.Guardian(0, run_id)
    with pytest.raises(ValueError, match="is no run id"):
        process_tree.processes_of_run(run_id)
    with pytest.raises(ValueError, match="is no run id"):
        process_tree.kill_all(0, run_id)


def test_only_its_own_run_is_found() -> None:
    """Of all processes of the machine, those with the mark; with a run id that nobody has, none."""
    run_id = uuid.uuid4().hex
    sleeper = subprocess.Popen(["sleep", "100"], env={"REPROKIT_RUN_ID": run_id})
    try:
        for asked, expected in ((run_id, {sleeper.pid}), (uuid.uuid4().hex, set())):
            words = [sys.executable, "-I", "-S", "-c", ASKS, str(SCRIPT.parent), asked]
            told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            assert told.strip() == str(expected)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_guardian_that_is_told_nothing_ends_nothing() -> None:
    """Reprokit was killed, or interrupted, between the start of its guardian and the first word."""
    ours, theirs = socket.socketpair()
    bystander = subprocess.Popen(["sleep", "100"], env={})
    words = [sys.executable, "-I", "-S", str(SCRIPT), str(theirs.fileno()), uuid.uuid4().hex]
    process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
    theirs.close()
    ours.close()
    try:
        assert process.wait(30) == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_an_exit_status_and_what_was_used_come_back(tmp_path: Path) -> None:
    """The program is the guardian's child; how it ended is known here, also of one that cannot be
    started.
    """
    child = guardian_client.start_guarded(
        ["sh", "-c", "exit 7"], {"PATH": "/usr/bin:/bin"}, tmp_path, uuid.uuid4().hex, None
    )
    reaped = child.reap(waits=True)
    child.dismiss()
    assert reaped is not None and reaped[0] >> 8 == 7 and reaped[1].ru_maxrss > 0
    with pytest.raises(FileNotFoundError):
        guardian_client.start_guarded(
            [str(tmp_path / "none")], {}, tmp_path, uuid.uuid4().hex, None
        )


@pytest.mark.parametrize("root", [-1, 0, 1])
def test_init_is_no_root(root: int) -> None:
    """All processes are below init, and 0 and -1 stand for groups that are not ours: none of them
    is ever ended.
    """
    assert process_tree.family_of(root) == []
    with pytest.raises(ValueError, match="leads no group of ours"):
        process_tree.end_tree(root, [])
