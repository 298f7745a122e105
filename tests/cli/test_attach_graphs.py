"""``reprokit attach --graphs`` runs code inside a process, which goes on as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprokit.host.attach.inside import pending_call, run_inside, stopped_thread
from reprokit.host.attach.inside.injection import CannotRunInside
from tests.support.processes import wait_until
from tests.support.reprokit_calls import reprokit

from .test_attach import program, state_of, wait_for_line

HAS_REMOTE_EXEC = hasattr(sys, "remote_exec")
pytestmark = pytest.mark.skipif(
    not stopped_thread.is_supported() and not HAS_REMOTE_EXEC, reason="needs x86-64 or Python 3.14"
)
with_a_stop = pytest.mark.skipif(HAS_REMOTE_EXEC, reason="Python 3.14 needs no stop")


COMPILING = """
import json, os, sys, threading, time
import torch

def slow(gm, inputs):
    print("ready", flush=True)
    while not os.path.exists("go"):
        sum(range(1000))
    return gm.forward

def write_state():
    while True:
        state = {"modules": sorted(sys.modules), "path": sys.path, "main": sorted(globals())}
        with open("state.part", "w") as file:
            json.dump(state, file)
        os.rename("state.part", "state")
        time.sleep(0.05)

def compile_it():
    x = torch.ones(3, 5)
    print("sum", torch.compile(lambda x: x.sin() + 2, backend=slow)(x).sum().item(), flush=True)

threading.Thread(target=write_state, daemon=True).start()
if "thread" in sys.argv:
    thread = threading.Thread(target=compile_it)
    thread.start()
    while thread.is_alive():
        time.sleep(0.01)
else:
    compile_it()
"""
BLOCKED = """
import os, threading, time

def release():
    while not os.path.exists("go"):
        time.sleep(0.05)
    lock.release()

lock = threading.Lock()
lock.acquire()
threading.Thread(target=release).start()
print("ready", flush=True)
lock.acquire()
print("went on", flush=True)
"""
ENDLESS = """
import torch

def f(x):
    for _ in range(16):
        x = x * x + 0.5
    return x

print("ready", flush=True)
with torch.no_grad():
    torch.compile(f)(torch.randn(64))
"""


def run_folder(tmp_path: Path) -> Path:
    for name in ("graphs", "journal"):
        (tmp_path / "run" / name).mkdir(parents=True)
    return tmp_path / "run"


def state_inside(folder: Path) -> Any:
    for _ in range(2):  # the first one may have been begun before
        (folder / "state").unlink(missing_ok=True)
        assert wait_until((folder / "state").exists)
    return json.loads((folder / "state").read_text())


def single_pages(pid: int) -> int:
    """Return the number of anonymous mappings of one page."""
    count = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split()
        begin, end = (int(word, 16) for word in words[0].split("-"))
        count += len(words) == 5 and end - begin == pending_call.PAGE_BYTES and words[1] == "rw-p"
    return count


@pytest.mark.real
@pytest.mark.parametrize("where", ["main", pytest.param("thread", marks=pytest.mark.long)])
def test_the_graph_is_written_and_nothing_is_left_behind(where: str, tmp_path: Path) -> None:
    """The program has the same modules, paths, names, files and pages, and the same result, also
    if a different thread compiles.
    """
    run = run_folder(tmp_path)
    with program("-c", COMPILING, where, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        before = state_inside(tmp_path), state_of(process.pid), single_pages(process.pid)
        assert run_inside.record_inside(process.pid, run, 30) == 1
        after = state_inside(tmp_path), state_of(process.pid), single_pages(process.pid)
        for name in before[0]:
            assert set(after[0][name]) == set(before[0][name]), name
        assert after[1:] == before[1:]
        (tmp_path / "go").touch()
        assert process.stdout is not None and "sum 42.62" in process.stdout.read()
        assert process.wait(60) == 0
    values = json.loads((run / "graphs" / "0001" / "values.json").read_text())
    (tensor,) = (v for n, v in values["values"].items() if n.lower().startswith("l_x"))
    assert (tensor["shape"], tensor["dtype"]) == ([3, 5], "torch.float32")
    assert json.loads((run / "graphs" / "0001" / "inputs.json").read_text())["cid"] == "0/0"
    text = (run / "graphs" / "0001" / "graph.py").read_text()
    assert ".sin()" in text and "torch.randn(3, 5)" in text
    assert "torch.set_grad_enabled(True)" in text
    assert sorted(path.name for path in run.iterdir()) == ["graphs", "journal"]


IN_GUARDS = """
import torch
from torch._dynamo.guards import CheckFunctionManager

def loop(*args, **kwargs):
    print("ready", flush=True)
    while True:
        sum(range(1000))

CheckFunctionManager.__init__ = loop
with torch.no_grad():
    torch.compile(lambda x: x.sin() + 2, backend="eager")(torch.ones(3, 5))
"""


@pytest.mark.real
def test_a_graph_whose_guards_hang_is_written(tmp_path: Path) -> None:
    """Dynamo has compiled it already, so no function that compiles it is on the stack."""
    run = run_folder(tmp_path)
    with program("-c", IN_GUARDS, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        assert run_inside.record_inside(process.pid, run, 30) == 1
    text = (run / "graphs" / "0001" / "graph.py").read_text()
    assert ".sin()" in text and "torch.randn(3, 5)" in text
    assert "torch.set_grad_enabled(False)" in text


def test_a_blocked_main_thread_never_runs_the_code(tmp_path: Path) -> None:
    """After the deadline the call does nothing, also when the thread goes on later."""
    run = run_folder(tmp_path)
    with program("-c", BLOCKED, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        with pytest.raises(CannotRunInside, match="ran no Python code for 1 s"):
            run_inside.record_inside(process.pid, run, 1)
        (tmp_path / "go").touch()
        wait_for_line(process, "went on")
        assert process.wait(30) == 0
    assert not list((run / "graphs").iterdir()) and not list((run / "journal").iterdir())


SIGNALLED = """
import os, signal, time

count = 0

def note(*_):
    global count
    count += 1

for number in (signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, note)
if os.fork() == 0:
    parent = os.getppid()
    while os.getppid() == parent:
        os.kill(parent, signal.SIGUSR1)
        os.kill(parent, signal.SIGINT)
        time.sleep(0.001)
    os._exit(0)
print("ready", flush=True)
while not os.path.exists("go"):
    sum(range(1000))
print("went on", flush=True)
os._exit(0)
"""


def test_signals_do_not_break_the_process(tmp_path: Path) -> None:
    """A signal during a call once left the process with the wrong registers. The process
    does not use torch, and torch is not imported into it.
    """
    with program("-c", SIGNALLED, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        assert run_inside.record_inside(process.pid, run_folder(tmp_path), 30) == 0
        assert "torch" not in Path(f"/proc/{process.pid}/maps").read_text().replace(
            str(tmp_path), ""
        )
        (tmp_path / "go").touch()
        wait_for_line(process, "went on")
        assert process.wait(30) == 0


def test_a_stopped_process_is_left_alone(tmp_path: Path) -> None:
    """A call inside it would not return."""
    with program("-c", BLOCKED, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        process.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        with pytest.raises(CannotRunInside, match="is stopped"):
            run_inside.record_inside(process.pid, run_folder(tmp_path), 1)
        process.send_signal(signal.SIGCONT)
        (tmp_path / "go").touch()
        wait_for_line(process, "went on")
        assert process.wait(30) == 0


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
def test_a_process_of_a_different_user_is_refused(tmp_path: Path) -> None:
    """It could not write into the run directory."""
    with subprocess.Popen(["setpriv", "--reuid", "12345", "sleep", "1000"]) as process:
        assert wait_until(lambda: psutil.Process(process.pid).uids().effective == 12345)
        try:
            with pytest.raises(CannotRunInside, match="belongs to a different user"):
                run_inside.record_inside(process.pid, run_folder(tmp_path), 1)
        finally:
            process.kill()


@with_a_stop
def test_a_process_that_does_not_stop_is_not_left_stopped(tmp_path: Path) -> None:
    """The main thread waits in a vfork, and goes on when that is over."""
    os.mkfifo(tmp_path / "fifo")
    text = (
        "import os\nprint('ready', flush=True)\n"
        "opened = (os.POSIX_SPAWN_OPEN, 0, 'fifo', os.O_RDONLY, 0)\n"
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[opened])\n"
        "print('went on', flush=True)\n"
    )
    with program("-c", text, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        assert wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_DISK_SLEEP)
        with pytest.raises(CannotRunInside, match="did not stop in 2 s"):
            run_inside.record_inside(process.pid, run_folder(tmp_path), 1)
        (tmp_path / "fifo").write_text("")
        wait_for_line(process, "went on")
        assert process.wait(30) == 0


ALARMS = """
import math, os, signal, subprocess, threading

count = 0

def note(*_):
    global count
    count += 1

def work():
    while not is_done:
        assert [math.sin(i) * math.exp(-i / 100) for i in range(200)] == values

is_done = False
values = [math.sin(i) * math.exp(-i / 100) for i in range(200)]
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, note)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
print("ready", flush=True)
while not os.path.exists("go"):
    assert subprocess.run(["true"]).returncode == 0
    assert [math.sin(i) * math.exp(-i / 100) for i in range(200)] == values
signal.setitimer(signal.ITIMER_REAL, 0)
is_done = True
print("went on" if count > 100 else "no signals", flush=True)
"""


@with_a_stop
def test_many_calls_change_neither_numbers_nor_signals(tmp_path: Path) -> None:
    """Vector registers, signals, forks and system calls of the program are as without the calls."""
    with program("-c", ALARMS, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        before = single_pages(process.pid)
        for number in range(20):
            ran, text = tmp_path / f"ran-{number}", tmp_path / "inside.py"
            call = pending_call.PendingCall(process.pid)
            text.write_text(f"open({str(ran)!r}, 'w').close()")
            call.start(text)
            assert wait_until(ran.exists), number
            call.remove()
        assert single_pages(process.pid) == before
        (tmp_path / "go").touch()
        wait_for_line(process, "went on")
        assert process.wait(30) == 0


def test_a_process_that_has_ended_is_named(tmp_path: Path) -> None:
    """A process that has ended cannot be stopped."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
        with pytest.raises(CannotRunInside, match="has ended"):
            run_inside.record_inside(process.pid, run_folder(tmp_path), 1)


def test_code_runs_only_with_consent(tmp_path: Path) -> None:
    """Without a terminal, --yes is needed, and one line says what would be done."""
    with program("-c", BLOCKED, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit("attach", str(process.pid), "--graphs", "--output-dir", tmp_path / "out")
    assert done.status == 2 and not (tmp_path / "out").exists()
    assert "main thread" in done.err and "runs code" in done.err and "--yes" in done.err, done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.long
def test_a_plain_process_that_compiles_without_end_gives_a_proved_repro(tmp_path: Path) -> None:
    """The graph of a process that nobody watched is reduced and proved, and the process goes on."""
    with program("-c", ENDLESS, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        time.sleep(25)
        done = reprokit(
            "attach", str(process.pid), "--graphs", "--yes", "--stall", "8", "--budget", "40s",
            "--json", "--output-dir", tmp_path / "out",
        )  # fmt: skip
        assert process.poll() is None
    assert (done.status, done.kind) == (1, "slow-compile"), done.out + done.err
    # both phases take exponential time
    assert done.json["verdict"]["phase"] in ("lowering", "codegen")
    assert done.json["minimized"]["proof"]["answer"] == "same", done.json["missing"]
    text = Path(done.json["repro"]).read_text()
    assert "torch.randn(64)" in text and "_config" not in text, text
