"""A program that reprokit stops can clean up first: it gets the user's signal, and SIGTERM at a
deadline or a stall.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import clean_environ
from tests.support.processes import restore_signals, survivors_after_wait, wait_until
from tests.support.reprokit_calls import reprokit, reprokit_command

COMPILES = (
    "import signal, sys, time, torch\ntorch.compile(lambda x: x + 1,"
    " backend='eager')(torch.ones(2))\n"
)
SAVES = """
def save(*_):
    print("saving", flush=True)
    time.sleep(1)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""
CLEANS = """
print("ready", flush=True)
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("cleaning", flush=True)
    time.sleep(1)
    print("clean", flush=True)
"""
IGNORES = """
signal.signal(signal.SIGINT, lambda *_: print("ignored", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1000)
"""


def start(tmp_path: Path, script: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    """Start a capture and wait until its program reports that it is ready."""
    command = reprokit_command(
        "capture", "--output-dir", str(tmp_path / "out"), *words, "--", sys.executable, str(script)
    )
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environ(**more),
        preexec_fn=restore_signals,
    )
    printed = tmp_path / "out" / "run-001" / "logs" / "stdout.txt"
    assert wait_until(lambda: printed.exists() and "ready" in printed.read_text()), (
        "the program never was ready"
    )
    return process


@pytest.mark.real
@pytest.mark.parametrize(
    ("number", "says"),
    [(signal.SIGINT, ["cleaning", "clean"]), (signal.SIGTERM, ["saving", "saved"])],
)
def test_the_users_signal_reaches_the_program(
    number: int, says: list[str], write: Any, tmp_path: Path
) -> None:
    """``except KeyboardInterrupt`` and a SIGTERM handler run to their ends; the grace period is
    printed.
    """
    process = start(tmp_path, write("polite.py", COMPILES + SAVES + CLEANS), "-v")
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert (tmp_path / "out" / "run-001" / "logs" / "stdout.txt").read_text().split() == [
        "ready",
        *says,
    ]
    assert f"sent {signal.Signals(number).name} to the program; it has 10 s to end" in err
    assert "the command ended by itself: exit status 0" in out


@pytest.mark.real
def test_a_second_ctrl_c_kills_at_once(write: Any, tmp_path: Path) -> None:
    """A program that ignores the first Ctrl-C is killed at the second, despite a grace period of an
    hour.
    """
    mark = uuid.uuid4().hex
    process = start(
        tmp_path, write("stubborn.py", COMPILES + IGNORES), "--grace", "3600", HANG_MARK=mark
    )
    printed = tmp_path / "out" / "run-001" / "logs" / "stdout.txt"
    process.send_signal(signal.SIGINT)
    assert wait_until(lambda: "ignored" in printed.read_text())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130 and "Ctrl-C again: killing the program" in err, err
    assert survivors_after_wait(mark) == []


@pytest.mark.real
def test_the_grace_period_ends(write: Any, tmp_path: Path) -> None:
    """After the grace period the program is killed, and reprokit reports it."""
    process = start(tmp_path, write("stubborn.py", COMPILES + IGNORES), "--grace", "1")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert (
        process.returncode == 130
        and "the program had not ended 1 s after SIGINT; killing it" in err
    ), err


@pytest.mark.real
def test_a_program_behind_a_shell_gets_the_signal(write: Any, tmp_path: Path) -> None:
    """A shell ends at SIGTERM without its program; the program gets the signal and can save."""
    script = write("polite.py", COMPILES + SAVES + CLEANS)
    out = tmp_path / "out"
    command = reprokit_command(
        "capture",
        "--output-dir",
        str(out),
        "--",
        "sh",
        "-c",
        f"{sys.executable} {shlex.quote(str(script))}; true",
    )
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environ()
    )
    printed = out / "run-001" / "logs" / "stdout.txt"
    assert wait_until(lambda: printed.exists() and "ready" in printed.read_text())
    process.terminate()
    process.communicate(timeout=180)
    assert printed.read_text().split() == ["ready", "saving", "saved"]


@pytest.mark.real
@pytest.mark.parametrize("how", ["stall", "deadline"])
def test_a_run_that_reprokit_stops_can_save_first(how: str, write: Any, tmp_path: Path) -> None:
    """In a hang inside the compiler the main thread can still run Python: its SIGTERM handler runs,
    and its actions are not part of the verdict.
    """
    hang = (
        "def backend(gm, i): time.sleep(1000)\ntorch.compile(lambda x: x + 2,"
        " backend=backend)(torch.ones(2))\n"
    )
    script = write("hang.py", COMPILES + SAVES + hang)
    words = ("--stall", "5") if how == "stall" else ("--timeout", "25", "--stall", "500")
    done = reprokit(
        "capture", "--json", *words, "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    assert done.kind == "hang" and done.json["verdict"]["phase"] == "backend", done.out
    assert done.json["verdict"]["cause"] == "sleep"
    assert (done.run_dir / "logs" / "stdout.txt").read_text().split() == ["saving", "saved"]


@pytest.mark.real
def test_a_program_that_cannot_run_a_handler_gets_no_grace_period(
    write: Any, tmp_path: Path
) -> None:
    """Native code holds the GIL, so no handler can run, and the grace period is skipped. It waits
    for a lock, because a loop costs CPU seconds until its stacks are read.
    """
    hang = (
        "import ctypes\ndef backend(gm, i):\n    python, mutex = ctypes.PyDLL(None),"
        " ctypes.create_string_buffer(64)\n    for _ in 'ab': python.pthread_mutex_lock(mutex)\n"
        "torch.compile(lambda x: x + 2, backend=backend)(torch.ones(2))\n"
    )
    script = write("hang.py", COMPILES + SAVES + hang)
    words = ("--stall", "5", "--grace", "3600")
    done = reprokit(
        "capture", "--json", *words, "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    assert done.kind == "hang" and done.json["verdict"]["cause"] == "gil-blocked", done.out
    assert "saving" not in (done.run_dir / "logs" / "stdout.txt").read_text()
    assert json.loads((done.run_dir / "run.json").read_text())["is_stalled"] is True


TICKS = """
import sys, time
for number in range(60):
    print(time.time(), flush=True)
    time.sleep(0.1)
"""
SHELL = """
import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, os.WUNTRACED)
if not os.WIFSTOPPED(status):
    os._exit(99)
time.sleep(2)
os.killpg(pid, signal.SIGCONT)
_, status = os.waitpid(pid, 0)
os._exit(os.waitstatus_to_exitcode(status))
"""
"""Start a command in the foreground of a terminal, and continue it two seconds after Ctrl-Z."""


def test_ctrl_z_stops_the_program_too(tmp_path: Path) -> None:
    """After the shell has continued reprokit, the program goes on, and nothing counts as a stall."""
    script = tmp_path / "ticks.py"
    script.write_text(TICKS)
    out = tmp_path / "out"
    words = ("capture", "--timeout", "60", "--output-dir", str(out), "--", sys.executable)
    leader, terminal = pty.fork()
    if not leader:
        command = [sys.executable, "-c", SHELL, *reprokit_command(*words, str(script))]
        os.execve(sys.executable, command, clean_environ())
    shown = b""
    try:
        while shown.count(b".") < 10:  # the program has begun
            shown += os.read(terminal, 1 << 12)
        os.write(terminal, b"\x1a")
        with contextlib.suppress(OSError):  # EIO: all processes of the terminal have ended
            while data := os.read(terminal, 1 << 12):
                shown += data
    finally:
        _, status = os.waitpid(leader, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, shown.decode()
    (log,) = out.glob("*/logs/stdout.txt")
    times = [float(line) for line in log.read_text().split()]
    assert len(times) == 60
    assert max(late - early for early, late in itertools.pairwise(times)) > 1.5
