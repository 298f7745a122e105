"""``reprokit attach --tasks`` asks a program for its tasks of asyncio, and the program goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.host.attach.inside import stopped_thread
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
    assert "task Task-1 sleeps at idle.py:5 in main" in done.out


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


PAIR = """
import asyncio, socket, threading

async def main():
    near, far = socket.socketpair()
    reader, _ = await asyncio.open_connection(sock=near)
    print("ready", flush=True)
    threading.Thread(target=lambda: (input(), far.send(b"message\\n"))).start()
    print(repr(await reader.readline()), flush=True)

asyncio.run(main())
"""


@needs_stop
def test_no_data_of_the_program_change(tmp_path: Path) -> None:
    """A loop is not woken through its sockets: a pair of the program would look the same."""
    (tmp_path / "pair.py").write_text(PAIR)
    with program("pair.py", cwd=tmp_path, stdin=subprocess.PIPE) as process:
        wait_for_line(process, "ready")
        done = attach_to(process, tmp_path, "--tasks", "--yes", "--stall", "3")
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        wait_for_line(process, repr(b"message\n"))
    assert "Task-1" in str(done.json["verdict"]), done.out + done.err
