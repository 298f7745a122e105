"""``reprokit attach --tasks`` asks a program for its tasks of asyncio, and the program goes on."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from reprokit.host.attach import open_requests
from reprokit.host.attach.inside import stopped_thread, wake_loop
from tests.support.processes import wait_until
from tests.support.reprokit_calls import reprokit

from .test_attach import program, state_of, wait_for_line

needs_stop = pytest.mark.skipif(
    not stopped_thread.is_supported() and not hasattr(sys, "remote_exec"),
    reason="needs x86-64 or Python 3.14",
)
TASKS = """
import asyncio, os

async def move(first, second):
    async with first:
        await asyncio.sleep(0.1)
        async with second:
            pass

async def main():
    left, right = asyncio.Lock(), asyncio.Lock()
    tasks = [
        asyncio.create_task(move(left, right), name="to-right"),
        asyncio.create_task(move(right, left), name="to-left"),
    ]
    await asyncio.sleep(0.3)
    print("ready", flush=True)
    {rest}

asyncio.run(main())
"""
BLOCKED = "await asyncio.gather(*tasks)"
ALIVE = """while not os.path.exists("go"):
        await asyncio.sleep(0.05)
    print("went on", flush=True)"""


def attach_to(process: object, tmp_path: Path, *words: str) -> object:
    return reprokit("attach", str(process.pid), "--json", "--output-dir", tmp_path / "out", *words)  # type: ignore[attr-defined]


@needs_stop
def test_tasks_that_wait_for_each_other_are_named(tmp_path: Path) -> None:
    """A loop at rest is woken. Each task has its name, its lock and its line."""
    (tmp_path / "transfers.py").write_text(TASKS.replace("{rest}", BLOCKED))
    with program("transfers.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach_to(process, tmp_path, "--tasks", "--yes", "--stall", "8")
        assert process.poll() is None
    assert (done.status, done.kind) == (1, "hang"), done.out + done.err
    assert done.json["verdict"]["cause"] == "lock-deadlock"
    detail = done.json["verdict"]["detail"]
    for name in ("to-right", "to-left"):
        assert f"task {name} holds first and waits for second at transfers.py:7" in detail, detail
    assert "waits for the tasks to-right, to-left at transfers.py:18 in main" in detail


@needs_stop
def test_a_program_goes_on_after_its_tasks_were_recorded(tmp_path: Path) -> None:
    """It has the same files, threads and modules, and its other tasks run."""
    (tmp_path / "transfers.py").write_text(TASKS.replace("{rest}", ALIVE))
    with program("transfers.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        before = state_of(process.pid)
        done = attach_to(process, tmp_path, "--tasks", "--yes", "--stall", "5")
        assert state_of(process.pid) == before
        (tmp_path / "go").touch()
        wait_for_line(process, "went on")
    assert "task to-right holds first" in done.json["verdict"]["detail"], done.out + done.err


def test_a_prepared_program_needs_no_option(tmp_path: Path) -> None:
    """It is asked with a signal, and the first line says so."""
    text = f"import reprokit; reprokit.watch()\n{TASKS.replace('{rest}', BLOCKED)}"
    (tmp_path / "transfers.py").write_text(text)
    with program("transfers.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit(
            "attach", str(process.pid), "--stall", "8", "--output-dir", tmp_path / "out"
        )
        assert process.poll() is None
    assert "task to-right holds first" in done.out, done.out + done.err
    assert "is asked for its tasks with a signal" in done.err.splitlines()[0]


def test_tasks_of_an_idle_program_are_listed(tmp_path: Path) -> None:
    """A task that sleeps may go on, so the program is idle."""
    text = (
        "import asyncio, reprokit; reprokit.watch()\n"
        "async def main():\n    asyncio.create_task(asyncio.Queue().get(), name='consumer')\n"
        "    print('ready', flush=True)\n    await asyncio.sleep(900)\nasyncio.run(main())\n"
    )
    (tmp_path / "idle.py").write_text(text)
    with program("idle.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit("attach", str(process.pid), "--output-dir", tmp_path / "out")
    assert done.status == 0 and "is idle" in done.out, done.out + done.err
    assert "task consumer waits for an item of a queue" in done.out
    assert "task Task-1 waits for a time at idle.py:5 in main" in done.out


def test_tasks_are_recorded_only_with_consent(tmp_path: Path) -> None:
    """One line says what would be done."""
    (tmp_path / "transfers.py").write_text(TASKS.replace("{rest}", BLOCKED))
    with program("transfers.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit("attach", str(process.pid), "--tasks", "--output-dir", tmp_path / "out")
    assert done.status == 2 and not (tmp_path / "out").exists()
    assert "tasks of asyncio" in done.err and "--yes" in done.err
    assert len(done.err.splitlines()) == 1


def test_an_observation_takes_as_long_as_asked(tmp_path: Path) -> None:
    """--observe goes on although the program is idle."""
    (tmp_path / "idle.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(900)\n")
    with program("idle.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach_to(process, tmp_path, "--observe", "4")
    assert done.kind == "ok" and done.json["seconds"] >= 4


def test_only_the_pair_of_a_loop_is_written_to() -> None:
    """A loop that was not woken has nothing to read, and other sockets get nothing."""
    import asyncio

    loop = asyncio.new_event_loop()
    left, right = socket.socketpair()
    try:
        inodes = [os.fstat(one.fileno()).st_ino for one in (left, right)]
        pairs = open_requests.unix_pairs()
        assert pairs[inodes[0]] == inodes[1] and pairs[inodes[1]] == inodes[0]
        wake_loop.wake_event_loops(os.getpid())
        own = loop._ssock  # type: ignore[attr-defined]
        assert wait_until(lambda: own.recv(8, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"\0")
        for one in (left, right):
            with pytest.raises(BlockingIOError):
                one.recv(1, socket.MSG_DONTWAIT)
    finally:
        left.close()
        right.close()
        loop.close()
