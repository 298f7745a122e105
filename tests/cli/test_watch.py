"""``reprokit watch`` reports lock-ups of a service, leaves it as it is, and goes on."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.json_documents import assert_documented
from tests.support.processes import restore_signals, wait_until
from tests.support.reprokit_calls import reprokit, reprokit_command

from .test_attach import WAITING, program, wait_for_line

SERVER = """
import http.server, queue, threading

jobs = queue.Queue()


def engine():
    while True:
        path, reply = jobs.get()
        if path == "/work":
            sum(i * i for i in range(1_000_000))
        if path != "/lose":
            reply.put(b"done")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        reply = queue.Queue()
        jobs.put((self.path, reply))
        body = reply.get()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


threading.Thread(target=engine, daemon=True).start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""

LAUNCHER = """
import multiprocessing, os, threading, time


def work(lock):
    with open("worker.pid", "w") as file:
        file.write(str(os.getpid()))
    while not os.path.exists("lock-up"):
        time.sleep(0.2)
    hold(lock)


def hold(lock):
    lock.acquire()
    lock.acquire()


if __name__ == "__main__":
    worker = multiprocessing.Process(target=work, args=(threading.Lock(),))
    worker.start()
    print("ready", flush=True)
    worker.join()
"""

IN_COMPILER = """
import time, torch


class Pass:
    def __call__(self, graph):
        print("inside", flush=True)
        time.sleep(3600)

    def uuid(self):
        return None


torch._inductor.config.post_grad_custom_pre_pass = Pass()
print("ready", flush=True)
torch.compile(lambda x: x + 1)(torch.randn(4))
"""


@contextlib.contextmanager
def watch(*words: object, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``reprokit watch`` in the background; at its end, send SIGTERM."""
    command = [sys.executable, "-m", "reprokit", "watch", "--output-dir", str(folder)]
    process = subprocess.Popen(
        [*command, *map(str, words)],
        cwd=ROOT,
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_signals,
    )
    try:
        assert wait_until((folder / "events.jsonl").exists, 60)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def lock_ups(folder: Path) -> list[dict[str, Any]]:
    return [event for event in events(folder) if event["event"] == "lock-up"]


def ask(port: int, path: str) -> subprocess.Popen[bytes]:
    """Send a request to a server, and wait for its answer in a process of its own."""
    code = (
        f"import http.client; c = http.client.HTTPConnection('127.0.0.1', {port});"
        f" c.request('GET', {path!r}); assert c.getresponse().read() == b'done'"
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)


@pytest.mark.real
def test_a_lost_request_is_a_lock_up_and_idle_is_not(tmp_path: Path) -> None:
    """Bursts and idle times are not reported, and from them the watch learns that the port answers.
    A request without an answer is reported, with a pack; the second is known, and the server goes
    on.
    """
    out = tmp_path / "out"
    with program("-c", SERVER, cwd=tmp_path) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with watch(server.pid, "--stall", "6", folder=out) as watcher:
            for _ in range(5):
                assert ask(port, "/work").wait() == 0
                time.sleep(1.5)
            time.sleep(8)
            assert events(out) == []
            for count in (1, 2):
                lost = ask(port, "/lose")
                assert wait_until(lambda count=count: len(lock_ups(out)) == count, 90)
                lost.kill()
                lost.wait()
                assert wait_until(lambda: events(out)[-1]["event"] == "advances", 60)
            watcher.terminate()
            assert watcher.wait(30) == 1
            assert server.poll() is None
            assert ask(port, "/work").wait(30) == 0
    first, second = lock_ups(out)
    assert first["cause"] == "unanswered-requests" and first["is_new"]
    assert f"1 request to port {port} has no answer" in first["reason"]
    assert Path(first["pack"]).is_file() and first["pack"].startswith(str(out))
    assert not second["is_new"] and not second["pack"]
    assert sorted(path.name for path in out.iterdir()) == ["events.jsonl", "lock-up-001"]


@pytest.mark.real
def test_a_worker_below_a_launcher_locks_up(tmp_path: Path) -> None:
    """A launcher that waits for an idle worker is idle. A worker in a deadlock is reported."""
    out = tmp_path / "out"
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    with program("launcher.py", cwd=tmp_path) as launcher:
        wait_for_line(launcher, "ready")
        with watch(launcher.pid, "--stall", "6", "--packs", "0", folder=out):
            time.sleep(15)
            assert events(out) == []
            (tmp_path / "lock-up").touch()
            assert wait_until(lambda: lock_ups(out), 90)
        worker = int((tmp_path / "worker.pid").read_text())
        assert psutil.pid_exists(worker)
    (found,) = lock_ups(out)
    assert found["cause"] == "deadlock" and f"Process {worker}" in found["reason"]
    assert "in hold" in found["reason"] and found["is_new"] and not found["pack"]


@pytest.mark.real
def test_a_compile_that_hangs_is_reported_with_its_phase(tmp_path: Path) -> None:
    """The watch of a command reports a hang in a pass, and the signal to reprokit ends both."""
    script = tmp_path / "script.py"
    script.write_text(IN_COMPILER)
    out = tmp_path / "out"
    with watch("--stall", "10", "--json", "--", sys.executable, script, folder=out) as watcher:
        assert wait_until(lambda: lock_ups(out), 240)
        watcher.terminate()
        text, _ = watcher.communicate(timeout=60)
    result = json.loads(text)
    assert_documented(["watch", "--json"], text)
    assert result["exit_status"] == -signal.SIGTERM and watcher.returncode == 128 + signal.SIGTERM
    assert not psutil.pid_exists(result["pid"])
    (found,) = result["lock_ups"]
    assert (found["phase"], found["cause"]) == ("fx-passes", "sleep"), found
    assert Path(found["pack"]).is_file()


def test_a_command_runs_as_it_would_without_reprokit(tmp_path: Path) -> None:
    """Its input, its output, its environment, its signals and its exit status are its own."""
    code = (
        "import os, sys, signal; print(input(), os.environ.get('MARK'), os.getpgrp(),"
        " signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(0, []),"
        " sorted(os.listdir('/proc/self/fd')), sorted(os.environ.items())); sys.exit(7)"
    )
    command = [sys.executable, "-c", code]
    env = clean_environ(MARK="mine")
    reading, writing = os.pipe()

    def run(*before: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, *command],
            input="hello\n",
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            pass_fds=(reading,),
        )

    plain = run()
    watched = run(
        sys.executable, "-m", "reprokit", "watch", "--output-dir", str(tmp_path / "out"), "--"
    )
    assert plain.returncode == watched.returncode == 7
    assert plain.stdout == watched.stdout and plain.stdout.startswith("hello mine")
    os.close(reading)
    os.close(writing)
    lines = [line.removeprefix("reprokit: ") for line in watched.stderr.splitlines()]
    assert lines[0].startswith("watching process ") and "ended after" in lines[1], watched.stderr


RANK = """
import os, sys, time, threading
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
dist.barrier()
"""


@pytest.mark.real("torchrun and its two ranks import torch")
def test_a_rank_of_torchrun_that_hangs_is_named(tmp_path: Path) -> None:
    """The watch of torchrun reports the rank that the other waits for, and torchrun ends its
    workers when the watch is ended.
    """
    (tmp_path / "rank.py").write_text(RANK)
    out = tmp_path / "out"
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    with watch("--stall", "10", "--json", "--", *launcher, tmp_path / "rank.py", folder=out) as own:
        assert wait_until(lambda: lock_ups(out), 240)
        own.terminate()
        result = json.loads(own.communicate(timeout=60)[0])
    assert not psutil.pid_exists(result["pid"])
    (found,) = result["lock_ups"]
    assert "rank 1" in found["reason"], found
    merged = reprokit("merge", "--json", out)
    assert merged.json["odd"] == [1], merged.out


def test_a_killed_watch_leaves_its_command(tmp_path: Path) -> None:
    """SIGKILL of reprokit ends neither the command nor changes it."""
    out = tmp_path / "out"
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(1000)"
    command = (sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {code}")
    with watch("--", *command, folder=out) as watcher:
        assert wait_until(
            lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text(), 60
        )
        pid = int((tmp_path / "pid").read_text())
        watcher.kill()
        watcher.wait()
        time.sleep(0.5)
        assert psutil.Process(pid).is_running()
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "name one process: a PID, --match NAME or -- COMMAND"),
        (("4194300",), "there is no process 4194300"),
        (("--match", "x", "--", "true"), "name one process"),
        (("--",), "there is no command after --"),
        (("--", "no-such-program"), "there is no program 'no-such-program'"),
        (("--stall", "never", "2"), "'never' is not a number of seconds"),
        (("--port", "99999", "2"), "'99999' is not a whole number from 1 to 65535"),
        (("--output-dir", "/proc/nowhere", "--", "true"), "name a writable --output-dir"),
    ],
)
def test_bad_input_gets_one_line(words: tuple[str, ...], part: str, tmp_path: Path) -> None:
    done = reprokit("watch", *words, cwd=tmp_path)
    assert done.status == 2 and part in done.err and done.err.count("\n") == 1, done.err
    assert done.out == "" and not list(tmp_path.iterdir())


INTERRUPTED = """
import signal, sys, time

count = []
signal.signal(signal.SIGINT, lambda *_: count.append(1))
print("ready", flush=True)
end = time.monotonic() + 60
while not count and time.monotonic() < end:
    time.sleep(0.05)
time.sleep(1.5)
print(f"interrupted {len(count)} times", flush=True)
"""


def test_an_interrupt_of_the_terminal_reaches_a_command_once(tmp_path: Path) -> None:
    """Ctrl-C sends SIGINT to the whole group, also if the input of reprokit is no terminal."""
    command = [sys.executable, "-m", "reprokit", "watch", "--output-dir", str(tmp_path / "out")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(ROOT)
        os.execve(
            sys.executable, [*command, "--", sys.executable, "-c", INTERRUPTED], clean_environ()
        )
    seen = b""
    try:
        while b"ready" not in seen:
            seen += os.read(terminal, 4096)
        os.write(terminal, b"\x03")
        while b"times" not in seen:
            seen += os.read(terminal, 4096)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert b"interrupted 1 times" in seen


def test_an_interrupt_of_reprokit_reaches_a_command_without_a_terminal(tmp_path: Path) -> None:
    with watch("--", sys.executable, "-c", INTERRUPTED, folder=tmp_path / "out") as watcher:
        assert watcher.stdout is not None and watcher.stdout.readline() == "ready\n"
        watcher.send_signal(signal.SIGINT)
        assert watcher.stdout.readline() == "interrupted 1 times\n"
        assert watcher.wait(30) == 0


def test_a_watch_that_fails_leaves_its_command(tmp_path: Path) -> None:
    """A file is where the folder of the looks belongs: the exit status is that of the command."""
    (tmp_path / "out").mkdir()
    # the shell has the pid that reprokit then has
    words = [*reprokit_command("watch", "--output-dir", "out", "--"), sys.executable, "-c"]
    code = "import time; time.sleep(3); raise SystemExit(5)"
    script = f"touch out/looks-$$; exec {shlex.join([*words, code])}"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=clean_environ(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "the watch failed and begins again: FileExistsError" in done.stderr or (
        "the watch failed and begins again: NotADirectoryError" in done.stderr
    ), done.stderr


LATER_STUCK = (
    "import threading, time\nprint('ready', flush=True)\ntime.sleep(8)\n"
    "lock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
)


@pytest.mark.real
@pytest.mark.parametrize("is_file", [False, True])
def test_a_folder_that_is_gone_does_not_hide_a_lock_up(is_file: bool, tmp_path: Path) -> None:
    """A deleted folder is created again; a file in its place is named in the report."""
    out, work = tmp_path / "out", tmp_path / "work"
    work.mkdir()
    with program("-c", LATER_STUCK, cwd=work) as process:
        wait_for_line(process, "ready")
        with watch(process.pid, "--stall", "6", folder=out) as watcher:
            assert wait_until(lambda: bool([*out.glob("looks-*/stacks")]), 60)
            shutil.rmtree(out)
            if not is_file:
                assert wait_until(lambda: bool([*out.glob("lock-up-*/*.tar.gz")]), 120)
                return
            while not out.is_file():  # the watcher may create the folder again in between
                shutil.rmtree(out, ignore_errors=True)
                with contextlib.suppress(IsADirectoryError):
                    out.write_text("")
            assert watcher.stderr is not None
            lines = iter(watcher.stderr.readline, "")
            line = next(line for line in lines if "could not be examined" in line)
    assert f"process {process.pid} has not moved for" in line and "Not a directory" in line


@pytest.mark.real
@pytest.mark.parametrize(
    "kind",
    [
        "simple queue",
        pytest.param("standard input", marks=pytest.mark.long),
        pytest.param("event", marks=pytest.mark.long),
    ],
)
def test_an_idle_process_has_not_locked_up(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "idle.py").write_text(WAITING[kind])
    with program("idle.py", cwd=tmp_path, stdin=subprocess.PIPE) as process:
        wait_for_line(process, "ready")
        with watch(process.pid, "--stall", "6", folder=out):
            time.sleep(16)
            assert events(out) == []
