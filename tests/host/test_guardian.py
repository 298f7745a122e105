"""A guardian kills the processes of its run and no others: not by accident, and not without a run
id.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from reprokit.host.system import guardian, guardian_client, process_tree

SCRIPT = Path(guardian.__file__)
PRINT_VICTIMS = (
    "import sys; sys.path.insert(0, sys.argv[1]); import guardian; print(guardian.Guardian(0,"
    " sys.argv[2]).find_victims())"
)


@pytest.mark.parametrize("run_id", ["", "x", "0" * 31, "0" * 33, "0" * 32 + "\n", "=" + "0" * 31])
def test_an_incomplete_run_id_is_refused(run_id: str) -> None:
    """An empty mark would match every environment."""
    with pytest.raises(ValueError, match="is not a run id"):
        guardian.Guardian(0, run_id)
    with pytest.raises(ValueError, match="is not a run id"):
        process_tree.processes_of_run(run_id)
    with pytest.raises(ValueError, match="is not a run id"):
        process_tree.kill_process_tree(0, run_id)


def test_only_its_own_run_is_found() -> None:
    """Only processes with the mark of the run are found, and none for an unknown run id."""
    run_id = uuid.uuid4().hex
    sleeper = subprocess.Popen(["sleep", "100"], env={"REPROKIT_RUN_ID": run_id})
    try:
        for searched, expected in ((run_id, {sleeper.pid}), (uuid.uuid4().hex, set())):
            words = [sys.executable, "-I", "-S", "-c", PRINT_VICTIMS, str(SCRIPT.parent), searched]
            printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            assert printed.strip() == str(expected)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_guardian_without_a_message_kills_nothing() -> None:
    """Reprokit was killed or interrupted between the start of its guardian and the first
    message.
    """
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


def test_an_exit_status_and_the_resource_usage_are_returned(tmp_path: Path) -> None:
    """The program is a child of the guardian; its exit status is known here, and also the error of
    a program that cannot be started.
    """
    child = guardian_client.start_guarded(
        ["sh", "-c", "exit 7"], {"PATH": "/usr/bin:/bin"}, tmp_path, uuid.uuid4().hex, None
    )
    reaped = child.reap_program(waits=True)
    child.dismiss()
    assert reaped is not None and reaped[0] >> 8 == 7 and reaped[1].ru_maxrss > 0
    with pytest.raises(FileNotFoundError):
        guardian_client.start_guarded(
            [str(tmp_path / "none")], {}, tmp_path, uuid.uuid4().hex, None
        )


def test_a_compiler_deletes_its_temporary_files_before_it_ends(tmp_path: Path) -> None:
    """It gets SIGTERM, on which a compiler deletes its temporary files. The other victims are
    stopped.
    """
    compiler = tmp_path / "x86_64-linux-gnu-g++-12"
    compiler.symlink_to("/bin/sh")
    left = tmp_path / "temporary.o"
    script = """trap 'rm "$1"; exit' TERM; touch "$1"; echo ready; while :; do sleep 0.1; done"""
    processes = [
        subprocess.Popen([compiler, "-c", script, "cc", left], stdout=subprocess.PIPE),
        subprocess.Popen(["sleep", "100"]),
    ]
    try:
        assert processes[0].stdout is not None and processes[0].stdout.readline() == b"ready\n"
        guardian.end_compilers({process.pid for process in processes})
        assert processes[0].wait(10) == 0 and not left.exists()
        assert psutil.Process(processes[1].pid).status() == psutil.STATUS_STOPPED
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("root", [-1, 0, 1])
def test_init_is_not_a_root(root: int) -> None:
    """All processes are below init, and 0 and -1 mean process groups of others, so none of them is
    ever killed.
    """
    assert process_tree.family_of(root) == []
    with pytest.raises(ValueError, match="is not the leader of a process group"):
        process_tree.kill_processes(root, [])
