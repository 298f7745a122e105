"""``reprokit attach`` reads a process that was started without reprokit, and leaves it as it is."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import access, find_process, running_program
from reprokit.host.pipeline import attach_pipeline
from reprokit.host.watch import blocked_on
from tests.support.environments import clean_environ
from tests.support.processes import wait_until
from tests.support.reprokit_calls import CallResult, reprokit, shared_call

from ..hangs.kinds import EXPECTED
from .test_hangs import KINDS, RANKS

IDLE = "import time\nprint('ready', flush=True)\ntime.sleep(1000)\n"
BUSY = "print('ready', flush=True)\nx = 0\nwhile True:\n    x = hash(x) + 1\n"


@contextlib.contextmanager
def program(
    *words: str, cwd: Path, stdin: int | None = None, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of Python that prints ``ready``; it is killed at the end."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env=clean_environ(HANGS_MARK=mark, **variables),
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        for other in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if other.environ().get("HANGS_MARK") == mark:
                    other.kill()
        process.wait()


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert any(read.strip() == line for read in process.stdout), "it ended without the line"


def attach(process: subprocess.Popen[str], folder: Path, *words: str) -> CallResult:
    return reprokit(
        "attach", str(process.pid), "--json", "--output-dir", folder / "out", *words, cwd=folder
    )


def state_of(pid: int) -> tuple[Any, ...]:
    """Return what an observer could change: signals, descriptors, mappings of files, threads."""
    proc = Path(f"/proc/{pid}")
    signals = [
        line
        for line in (proc / "status").read_text().splitlines()
        if re.match("Sig(Pnd|Blk|Ign|Cgt)", line)
    ]
    files = sorted(os.readlink(link) for link in (proc / "fd").iterdir())
    mapped = {line.split()[-1] for line in (proc / "maps").read_text().splitlines() if "/" in line}
    return signals, files, mapped, len(list((proc / "task").iterdir()))


def test_an_idle_process_is_not_a_hang(tmp_path: Path) -> None:
    """The verdict is there at once, nothing of the process changes, and its folder stays empty."""
    work = tmp_path / "work"
    work.mkdir()
    with program("-c", IDLE, cwd=work) as process:
        wait_for_line(process, "ready")
        before = state_of(process.pid)
        done = attach(process, tmp_path)
        assert state_of(process.pid) == before and process.poll() is None
    assert done.status == 0, done.out + done.err
    assert (done.kind, done.json["verdict"]["cause"]) == ("ok", "idle"), done.out
    assert not list(work.iterdir())
    told = done.json["process"]
    assert told["argv"] == [sys.executable, "-c", IDLE] and told["cwd"] == str(work)
    assert told["python"] == sys.executable and not told["has_ended"]
    assert told["capture"].startswith(f"cd {shlex.quote(str(work))} && ")
    assert f"reprokit capture -- {sys.executable} -c" in told["capture"]
    with tarfile.open(done.json["pack"]) as pack:
        assert any(name.endswith("observation.json") for name in pack.getnames())
    again = reprokit("pack", "--json", done.run_dir)
    assert again.json["verdict"] == done.json["verdict"]
    assert again.json["signature"] == done.json["signature"]


TWO_LOCKS = """
import socket, threading, time
class Store:
    def __init__(self):
        self.rows, self.index = threading.Lock(), threading.Lock()
    def add(self):
        with self.rows:
            time.sleep(0.5)
            with self.index:
                pass
    def find(self):
        with self.index:
            time.sleep(0.5)
            self.rows.acquire()
            self.rows.release()
store = Store()
threading.Thread(target=store.add, name="writer").start()
threading.Thread(target=store.find, name="reader").start()
for number in range(5):
    threading.Thread(target=store.add, name=f"late-{number}", daemon=True).start()
threading.Thread(target=threading.Event().wait, name="idle").start()
time.sleep(2)
print("ready", flush=True)
server = socket.create_server(("127.0.0.1", 0))
server.accept()
"""


def test_threads_that_wait_for_each_other_are_both_named(tmp_path: Path) -> None:
    """The main thread accepts connections, and the cause is not there. The observation ends before
    ``--stall``, because no time lets the threads go on.
    """
    (tmp_path / "store.py").write_text(TWO_LOCKS)
    with program("store.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "300s")
    verdict = done.json["verdict"]
    assert (done.status, done.kind, verdict["cause"]) == (1, "hang", "lock-deadlock"), done.out
    first, second = verdict["detail"].split("; ")
    sides = {
        "thread writer holds self.rows and waits for self.index at store.py:9 in Store.add",
        "thread reader holds self.index and waits for self.rows at store.py:14 in Store.find",
    }
    assert {first, second} == sides
    assert verdict["path"] == ["5 more threads wait for self.rows at store.py:7 in Store.add"]
    assert verdict["responsible"] == "user" and "store.py:" in verdict["responsible_place"]
    assert done.json["advice"] == "take these locks in the same order in all threads"
    assert done.json["total_s"] < 150
    shown = reprokit("show", done.json["pack"]).out
    assert "at store.py:9 in Store.add: with self.index:" in shown
    assert "at store.py:14 in Store.find: self.rows.acquire()" in shown


def test_a_lock_that_is_held_for_long_is_no_deadlock(tmp_path: Path) -> None:
    """Its holder sleeps, and waits for no lock."""
    text = TWO_LOCKS.replace("with self.index:\n                pass", "time.sleep(900)")
    (tmp_path / "store.py").write_text(text)
    with program("store.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "4s")
    detail = done.json["verdict"]["detail"]
    assert "thread writer holds it and is at store.py:9" in detail, done.out
    assert detail.count(" holds ") == 1, done.out


def test_a_working_process_advances_and_is_ended_on_request(tmp_path: Path) -> None:
    """A process that computes outside of the compiler is no hang; --then end ends it."""
    with program("-c", BUSY, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--then", "end", "--stall", "20")
        assert process.wait(10) == -signal.SIGTERM
    assert (done.status, done.kind) == (0, "ok"), done.out
    assert "advances" in done.json["verdict"]["reason"]
    assert done.json["process"]["has_ended"]


def test_the_text_says_first_what_is_done(tmp_path: Path) -> None:
    """The first line says what is read; the last lines name the command from the start."""
    with program("-c", IDLE, "--token=hunter2secret", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit("attach", str(process.pid), "--output-dir", tmp_path / "out")
    first = done.err.splitlines()[0]
    assert f"reading the stacks of process {process.pid} three times, from outside" in first
    assert "nothing is stopped, signalled or written there" in first
    assert "is idle" in done.out and "\ncapture    " in done.out
    assert "hunter2secret" not in done.out + done.err
    (pack,) = (tmp_path / "out").glob("*.tar.gz")
    with tarfile.open(pack) as packed:
        for member in packed.getmembers():
            file = packed.extractfile(member)
            assert file is None or b"hunter2secret" not in file.read(), member.name


def test_the_default_folder_is_not_that_of_the_process(tmp_path: Path) -> None:
    """Without --output-dir, the pack is outside of the working directory of the process."""
    with program("-c", IDLE, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit("attach", str(process.pid), "--json", cwd=tmp_path)
    assert done.status == 0 and not list(tmp_path.iterdir())
    assert tmp_path not in done.run_dir.parents
    shutil.rmtree(done.run_dir.parent.parent)


def test_a_process_is_found_by_its_command_line(tmp_path: Path) -> None:
    """--match finds the outermost process; none and several are refused with what to do."""
    name = f"name-{uuid.uuid4().hex}"
    none = reprokit("attach", "--match", name)
    assert none.status == 2 and "there is no process whose command line contains" in none.err
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    with program("-c", launcher, IDLE, name, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        assert find_process.find_by_name(name) == process.pid
        with program("-c", IDLE, name, cwd=tmp_path) as other:
            wait_for_line(other, "ready")
            two = reprokit("attach", "--match", name)
            assert two.status == 2 and "there are 2 processes" in two.err
            assert str(process.pid) in two.err and str(other.pid) in two.err


def test_a_process_is_found_by_its_slurm_job(tmp_path: Path) -> None:
    """A launcher and its child belong to one job; the launcher is chosen."""
    job = str(uuid.uuid4().int)
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    with program("-c", launcher, IDLE, cwd=tmp_path, SLURM_JOB_ID=job) as process:
        wait_for_line(process, "ready")
        assert find_process.find_by_slurm_job(job) == process.pid


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name one process: a PID, --match NAME or --slurm-job ID"),
        (("4194303",), "there is no process 4194303"),
        (("4242", "--match", "x"), "name one process"),
        (("1",), "'1' is not a whole number of at least 2"),
        ((str(os.getpid()),), "is reprokit itself or started it"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: tuple[str, ...], says: str) -> None:
    """Each refusal says what was wrong."""
    done = reprokit("attach", *words)
    assert done.status == 2 and says in done.err, done.err


def test_a_process_without_python_is_refused(tmp_path: Path) -> None:
    """A shell that sleeps has no Python stack to read."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        done = reprokit("attach", str(process.pid), "--output-dir", tmp_path)
        process.kill()
    assert done.status == 2 and "runs Python" in done.err, done.err


def test_a_process_that_has_ended_is_refused() -> None:
    """A zombie has no stack either."""
    with subprocess.Popen(["true"]) as process:
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        done = reprokit("attach", str(process.pid))
    assert done.status == 2 and "has ended" in done.err, done.err


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
def test_without_the_right_to_read_memory_the_kernel_answers(tmp_path: Path) -> None:
    """Without SYS_PTRACE the stacks are missing, with the option that permits them, and the pack
    has what can be read without it.
    """
    with program("-c", IDLE, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        command = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
        command += [sys.executable, "-m", "reprokit", "attach", str(process.pid), "--stall", "3"]
        done = subprocess.run(
            [*command, "--output-dir", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            env=clean_environ(),
            check=False,
        )
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "--cap-add=SYS_PTRACE" in done.stderr, done.stderr
    assert "stacks" in done.stdout and "pack" in done.stdout


def test_each_missing_right_has_its_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A different user, a container and each scope of Yama have different advice."""
    pid = os.getpid()

    def advice(uid: int, owner: int, has_capability: bool, scope: str) -> str:
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        monkeypatch.setattr(access, "_owner", lambda pid: owner)
        monkeypatch.setattr(access, "_has_ptrace_capability", lambda: has_capability)
        monkeypatch.setattr(blocked_on, "read_proc_file", lambda path: scope)
        return access._advice(pid)

    assert "run reprokit as that user, or with sudo" in advice(1000, 1001, False, "0")
    assert "--cap-add=SYS_PTRACE" in advice(0, 1000, False, "0")
    assert "sysctl kernel.yama.ptrace_scope=0" in advice(1000, 1000, False, "1\n")
    assert "only a restart" in advice(1000, 1000, False, "3\n")
    assert "security module" in advice(1000, 1000, False, "")


def test_a_free_threaded_build_is_named(tmp_path: Path) -> None:
    """py-spy cannot read it; the name of its library shows it."""
    library = tmp_path / "libpython3.14t.so.1.0"
    library.write_bytes(b"\0" * 4096)
    text = (
        "import mmap, time\nfile = open('libpython3.14t.so.1.0', 'r+b')\n"
        "mapped = mmap.mmap(file.fileno(), 0)\nprint('ready', flush=True)\ntime.sleep(1000)\n"
    )
    with program("-c", text, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        assert "free-threaded build" in access.check_access(process.pid)


def test_the_command_again_has_only_allowed_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of torch are kept, a secret is not, nor is what is the same here."""
    monkeypatch.setenv("TORCH_LOGS", "same")
    variables = {
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "HF_TOKEN": "hf_secret",
        "TORCH_LOGS": "same",
    }
    with program("-c", IDLE, cwd=tmp_path, **variables) as process:
        wait_for_line(process, "ready")
        again = running_program.describe_process(process.pid).command_again
    assert "TORCHINDUCTOR_MAX_AUTOTUNE=1 " in again.partition(" reprokit capture -- ")[0] + " "
    assert "secret" not in again and "TORCH_LOGS" not in again


def test_the_command_again_hides_secrets_by_their_form(tmp_path: Path) -> None:
    """The password of a URL is hidden in an argument, and a variable with one is left out."""
    url = "https://ann:pw12345@example.com/x"
    with program("-c", IDLE, url, "", cwd=tmp_path, TORCH_LOGS=url) as process:
        wait_for_line(process, "ready")
        described = running_program.describe_process(process.pid)
    assert described.argv[-1] == "" and described.command_again.endswith(" ''")
    assert "pw12345" not in described.command_again + str(described.visible_argv)
    assert "https://<hidden>@example.com/x" in described.visible_argv


def test_a_deleted_folder_has_its_old_name(tmp_path: Path) -> None:
    """The kernel adds a mark to the path of a deleted folder, which no command should have."""
    work = tmp_path / "work"
    work.mkdir()
    with program("-c", IDLE, cwd=work) as process:
        wait_for_line(process, "ready")
        work.rmdir()
        assert running_program.describe_process(process.pid).cwd == str(work)


def test_a_process_that_ends_is_not_said_to_be_without_progress(tmp_path: Path) -> None:
    """It ends during the observation: nothing is claimed, and no signal is sent."""
    text = "import threading\nprint('ready', flush=True)\nlock = threading.Lock()\nlock.acquire()\n"
    with program("-c", text + "lock.acquire(timeout=8)", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "60", "--then", "end")
        assert process.wait(10) == 0
    assert (done.status, done.json["verdict"]["cause"]) == (3, "ended"), done.out
    assert "ended while it was observed" in done.json["verdict"]["reason"]
    assert not done.json["process"]["has_ended"]


def test_a_process_that_runs_one_child_after_another_advances(tmp_path: Path) -> None:
    """Its stack is the same at each look, but it waits for a different child that works."""
    text = (
        "import subprocess\nprint('ready', flush=True)\n"
        "while True:\n    subprocess.run(['timeout', '0.5', 'sh', '-c', 'while :; do :; done'])\n"
    )
    with program("-c", text, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "20")
    assert (done.status, done.kind) == (0, "ok"), done.out
    assert "advances" in done.json["verdict"]["reason"], done.out


def test_a_launcher_of_an_idle_program_is_idle(tmp_path: Path) -> None:
    """It waits for a child that waits for something that may come at any time."""
    text = (
        "import subprocess, sys\nprint('ready', flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
    )
    with program("-c", text, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        wait_until(lambda: psutil.Process(process.pid).children(), 30)
        done = attach(process, tmp_path, "--stall", "5")
    assert (done.kind, done.json["verdict"]["cause"]) == ("ok", "idle"), done.out


SERVER = """
import socket, time

server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
if READS:
    connection.recv(100)
time.sleep(1000)
"""


@pytest.mark.parametrize("reads", [False, True])
def test_a_process_with_an_open_request_is_not_idle(reads: bool, tmp_path: Path) -> None:
    """Data that nobody read wait. Data that were read wait only on a port that answers."""
    with program("-c", f"READS = {reads}" + SERVER, cwd=tmp_path) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with socket.create_connection(("127.0.0.1", int(port))) as client:
            client.send(b"request")
            time.sleep(3)
            words = ("--stall", "60", "--stalled-for", "2m")
            done = attach(process, tmp_path, *words, "--port", port)
            unnamed = attach(process, tmp_path, *words)
    cause = "unanswered-requests"
    assert (done.kind, done.json["verdict"]["cause"]) == ("hang", cause), done.out
    state = "no answer" if reads else "not been read"
    assert f"1 request to port {port} has {state}, the oldest for" in done.json["verdict"]["reason"]
    assert "(120 s of them before reprokit attached)" in done.json["verdict"]["reason"]
    again = reprokit("pack", "--json", done.run_dir)
    assert again.json["verdict"] == done.json["verdict"]
    assert unnamed.json["verdict"]["cause"] == ("idle" if reads else cause), unnamed.out


def test_only_the_same_process_is_ended(tmp_path: Path) -> None:
    """A process that has the pid of one that ended is not signalled."""
    with program("-c", IDLE, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        earlier = psutil.Process(process.pid)
        earlier._ident = (process.pid, 1.0)  # type: ignore[attr-defined]
        assert not attach_pipeline._end_process(earlier, 0, print)
        time.sleep(0.5)
        assert process.poll() is None


def test_children_have_the_whole_grace_to_end(tmp_path: Path) -> None:
    """A child that cleans up after its parent has ended is not killed before --grace."""
    child = "import os, time\nwhile os.getppid() == {0}: time.sleep(0.1)\ntime.sleep(2)\nopen('clean', 'w')"
    text = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}.format(os.getpid())])\n"
        "time.sleep(1)\nprint('ready', flush=True)\ntime.sleep(1000)\n"
    )
    with program("-c", text, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        assert attach_pipeline._end_process(psutil.Process(process.pid), 60, print)
    assert (tmp_path / "clean").exists()


def test_a_process_that_may_not_be_ended_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before the observation."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(BadInput, match="may not end process 4242"):
        attach_pipeline._check_may_end(4242)


def attach_to_kind(kind: str, folder: Path) -> CallResult:
    """Attach to a program that hangs on purpose, until it is in the phase of its hang, and check
    that it goes on.
    """
    variables, words = {}, [str(KINDS), kind]
    if kind.startswith("gloo_"):
        port = str(20_000 + os.getpid() % 20_000)
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        words = ["-c", RANKS, sys.executable, *words]
    with program(*words, cwd=folder, **variables) as process:
        for _ in range(20):
            time.sleep(6)
            native = ["--native"] * kind.startswith("native_")
            done = attach(process, folder, "--stall", "6", *native)
            if done.kind == "hang":
                break
        assert process.poll() is None
        return done


def attach_to_ranks(factory: pytest.TempPathFactory) -> CallResult:
    """Attach to two ranks of which one waits for the other. All workers share it."""
    return shared_call(factory, "two-ranks", lambda folder: attach_to_kind("gloo_eager", folder))


@pytest.mark.real
@pytest.mark.parametrize(
    "kind",
    [
        "deadlock",
        pytest.param("filelock", marks=pytest.mark.long),
        pytest.param("join_busy", marks=pytest.mark.long),
        pytest.param("in_thread", marks=pytest.mark.long),
        pytest.param("worker_sleep", marks=pytest.mark.long),
        "cxx_sleep",
        "gloo_eager",
        pytest.param("native_spin_gil", marks=pytest.mark.long),
        "native_lock_gil",
    ],
)
def test_a_plain_process_gets_the_cause_and_the_phase(
    kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The process runs without reprokit, and goes on after the attachment."""
    is_shared = kind == "gloo_eager"
    done = attach_to_ranks(tmp_path_factory) if is_shared else attach_to_kind(kind, tmp_path)
    causes, phases = EXPECTED[kind]
    verdict = done.json["verdict"]
    assert (done.status, verdict["kind"]) == (1, "hang"), done.out
    assert verdict["cause"] in causes and verdict["phase"] in phases, verdict
    if kind == "gloo_eager":
        assert any("rank 0" in row for row in verdict["path"]), verdict


WAITING = {
    "simple queue": (
        "import queue, threading; q = queue.SimpleQueue()\n"
        "threading.Timer(900, q.put, (1,)).start()\nprint('ready', flush=True)\nq.get()"
    ),
    "standard input": "import sys\nprint('ready', flush=True)\nsys.stdin.readline()",
    "event": "import os; e = os.eventfd(0)\nprint('ready', flush=True)\nos.read(e, 8)",
}


@pytest.mark.parametrize("kind", WAITING)
def test_a_call_of_c_code_that_waits_for_work_is_idle(kind: str, tmp_path: Path) -> None:
    """Its frame is not on the stack."""
    (tmp_path / "idle.py").write_text(WAITING[kind])
    with program("idle.py", cwd=tmp_path, stdin=subprocess.PIPE) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "3")
    assert (done.kind, done.json["verdict"]["cause"]) == ("ok", "idle"), done.out + done.err


def test_only_the_interpreter_that_this_user_runs_is_run() -> None:
    """Its environment is asked with the rights of reprokit, so a different file must not be run."""
    own = running_program.describe_process(os.getpid())
    assert running_program.why_not_run(own) == ""
    replaced = dataclasses.replace(own, python="/bin/sh")
    assert "is a different file than the one" in running_program.why_not_run(replaced)
    gone = dataclasses.replace(own, python="/nonexistent/python3")
    assert "is not there any more" in running_program.why_not_run(gone)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
def test_the_interpreter_of_a_different_user_is_not_run(tmp_path: Path) -> None:
    """The pack says why there is no environment."""
    command = ["setpriv", "--reuid", "12345", "--clear-groups", "/usr/bin/python3", "-c", IDLE]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "3")
    finally:
        process.kill()
        process.wait()
    why = {row["what"]: row["why"] for row in done.json["missing"]}
    assert "belongs to a different user" in str(why), done.out + done.err
