"""A program that calls ``reprokit.watch()``, or runs with REPROKIT_WATCH=1, says more to attach."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import CallResult, reprokit

from .test_attach import program, wait_for_line

HANG = """
import threading, torch

torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(4))

class Pass:
    def __call__(self, graph):
        print("ready", flush=True)
        threading.Event().wait()
    def uuid(self):
        return None

torch._inductor.config.post_grad_custom_pre_pass = Pass()
torch.compile(lambda x: x.sin() + 1)(torch.ones(4))
"""


def memory_files(pid: int) -> list[str]:
    """Return the kinds of reprokit's memory files that a process has open."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        if os.path.islink(f"/proc/{pid}/fd/{name}"):
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return sorted(link.split("-")[1] for link in links if link.startswith("/memfd:reprokit-"))


def attach(pid: int, folder: Path, **variables: str) -> CallResult:
    return reprokit(
        "attach",
        str(pid),
        "--stall",
        "3",
        "--json",
        "--output-dir",
        folder / "out",
        cwd=folder,
        env=clean_environ(**variables),
    )


@pytest.mark.real("it compiles with Inductor, often as the first test that does")
def test_its_journal_says_for_how_long_it_has_hung_and_in_which_pass(tmp_path: Path) -> None:
    """The first answer is the verdict: the observation does not have to last for --stall."""
    (tmp_path / "work").mkdir()
    words = ("-c", "import reprokit; reprokit.watch()\n" + HANG)
    with program(*words, cwd=tmp_path / "work") as process:
        wait_for_line(process, "ready")
        time.sleep(4)
        assert memory_files(process.pid) == ["journal", "program", "stacks"]
        done = attach(process.pid, tmp_path)
        assert process.poll() is None
    assert (done.kind, done.json["verdict"]["phase"]) == ("hang", "fx-passes"), done.out + done.err
    verdict = done.json["verdict"]
    assert verdict["cause"] == "thread-wait"
    assert "in phase fx-passes (post_grad_custom_pre_pass)" in verdict["reason"]
    assert "before reprokit attached" in verdict["reason"]
    assert not list((tmp_path / "work").iterdir())
    again = reprokit("pack", "--json", done.run_dir)
    assert again.json["verdict"] == verdict


@pytest.mark.real
def test_it_writes_its_stacks_on_a_signal_if_they_cannot_be_read(tmp_path: Path) -> None:
    """REPROKIT_WATCH=1 has the same effect, in a program that does not know reprokit."""
    with program("-c", HANG, cwd=tmp_path, REPROKIT_WATCH="1") as process:
        wait_for_line(process, "ready")
        time.sleep(4)
        done = attach(process.pid, tmp_path, REPROKIT_PY_SPY="/nonexistent")
        assert process.poll() is None
    assert (done.kind, done.json["verdict"]["phase"]) == ("hang", "fx-passes"), done.out + done.err
    assert "in __call__" in done.json["verdict"]["reason"]


@pytest.mark.real("it compiles for as long as it is observed")
def test_a_compile_that_goes_on_is_no_hang(tmp_path: Path) -> None:
    """Events of the journal are progress, also where the stacks look the same."""
    code = """
import time, torch
import reprokit; reprokit.watch()

class Pass:
    def __call__(self, graph):
        time.sleep(0.3)
    def uuid(self):
        return None

torch._inductor.config.post_grad_custom_pre_pass = Pass()
print("ready", flush=True)
for n in range(1000):
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin() + n)(torch.ones(4))
"""
    with program("-c", code, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        time.sleep(8)
        done = attach(process.pid, tmp_path)
        assert process.poll() is None
    assert done.kind == "ok", done.out + done.err
    assert "advances" in done.json["verdict"]["reason"]


def run_python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


LIST_FILES = """
import os
def memory_files():
    links = []
    for name in os.listdir("/proc/self/fd"):
        if os.path.islink("/proc/self/fd/" + name):
            links.append(os.readlink("/proc/self/fd/" + name))
    return sorted(link.split()[0] for link in links if link.startswith("/memfd:reprokit-"))
"""


def test_a_forked_child_has_memory_of_its_own() -> None:
    """The child does not write into the journal of its parent."""
    code = (
        "import reprokit; reprokit.watch(); reprokit.watch()\n"
        + LIST_FILES
        + """
from reprokit.agent.record import journal
def check():
    pid = os.getpid()
    names = ("journal", "program", "stacks")
    assert memory_files() == [f"/memfd:reprokit-{name}-{pid}" for name in names]
    journal.write_now("line", f"of {pid}")
    assert f"of {pid}" in bytes(journal._memory._memory[:1024]).decode()
check()
if not os.fork():
    check()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
assert f"of {os.getpid()}" in bytes(journal._memory._memory[:1024]).decode()
"""
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_descriptors_that_the_program_closes_and_uses_again_are_not_touched(tmp_path: Path) -> None:
    """A daemon closes all descriptors, and then its own files get their numbers."""
    code = (
        "import reprokit; reprokit.watch()\n"
        + LIST_FILES
        + f"""
assert len(memory_files()) == 3
os.closerange(3, 100)
files = [open({str(tmp_path)!r} + f"/{{n}}", "w") for n in range(8)]
from reprokit.agent.record import journal
from reprokit.core.shared.contract import events
journal.write_event(events.End(name="x"))
journal.write_now("line", "somewhere")
if not os.fork():
    journal.write_event(events.End(name="x"))
    for n, file in enumerate(files):
        os.write(file.fileno(), b"child")
    os._exit(0)
os.wait()
for file in files:
    file.write("parent")
    file.close()
"""
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert {path.read_text() for path in tmp_path.iterdir()} == {"childparent"}


def test_a_child_without_memory_of_its_own_writes_no_journal() -> None:
    """Its fork is at the limit of descriptors, and it still has the memory of its parent mapped."""
    code = """
import os, resource
import reprokit; reprokit.watch()
from reprokit.agent.record import journal
journal.write_now("line", "of the parent")
memory = journal._memory._memory
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
if not os.fork():
    journal.write_now("line", "of the child")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert b"of the parent" in bytes(memory[:1024])
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_it_uses_no_standard_stream_and_no_signal_of_the_program() -> None:
    """A program without standard streams writes to their numbers, and C code may handle signals."""
    code = (
        LIST_FILES
        + """
import ctypes, signal
numbers = [signal.SIGRTMAX - 5, signal.SIGRTMAX - 6]
libc = ctypes.CDLL(None)
libc.signal.restype = ctypes.c_void_p
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
for number in numbers:
    libc.signal(number, handler)
before = os.dup(2)
os.close(0), os.close(1)
import reprokit; reprokit.watch()
assert not os.path.exists("/proc/self/fd/0") and not os.path.exists("/proc/self/fd/1")
assert len(memory_files()) == 1, memory_files()  # the journal
for number in numbers:
    assert libc.signal(number, handler) == ctypes.cast(handler, ctypes.c_void_p).value
"""
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_it_never_raises() -> None:
    """Without a module that it needs, the program goes on."""
    code = "import sys; sys.modules['_ctypes'] = None\nimport reprokit; reprokit.watch()"
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_has_no_effect_under_a_capture() -> None:
    """A capture records more, and has its own files."""
    code = "import reprokit; reprokit.watch()\n" + LIST_FILES + "print(memory_files())"
    assert run_python(code, REPROKIT_RUN_DIR="/tmp").stdout.strip() == "[]"


@pytest.mark.parametrize(("value", "is_on"), [("1", True), ("0", False), ("", False)])
def test_a_program_without_torch_gets_no_imports(value: str, is_on: bool) -> None:
    """REPROKIT_WATCH=1 waits for torch, and a Python program that never imports it stays as it is."""
    code = (
        "import sys; heavy = {'typing', 'ctypes', 'dataclasses', 'json'} & set(sys.modules)\n"
        + LIST_FILES
        + "print(sorted(heavy), memory_files())\n"
        + "print('reprokit.agent.prepare' in sys.modules)"
    )
    done = run_python(code, REPROKIT_WATCH=value)
    heavy, is_prepared = done.stdout.splitlines()
    assert is_prepared == str(is_on), done.stderr
    # other files of the environment may import them
    assert heavy == run_python(code).stdout.splitlines()[0]


KILLED_CHILD = """
import os, signal, time
import reprokit; reprokit.watch()
from reprokit.agent.record import journal
from reprokit.core.shared.contract import events

child = os.fork()
if not child:
    journal.write_event(events.Begin(name="GraphLowering.run"))
    time.sleep(1000)
time.sleep(1)
os.kill(child, signal.SIGKILL)
print("ready", flush=True)
n = 0
while True:
    n = hash(n) + 1
"""


def test_a_child_that_was_killed_is_not_judged(tmp_path: Path) -> None:
    """Its parent has not waited for it, and its journal ends in an open phase."""
    with program("-c", KILLED_CHILD, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process.pid, tmp_path)
    assert done.kind == "ok", done.out + done.err
    assert f"Process {process.pid} advances" in done.json["verdict"]["reason"]


ADVANCING = """
import time
import reprokit; reprokit.watch()
from reprokit.agent.record import journal
from reprokit.core.shared.contract import events

journal.write_event(events.Begin(name="GraphLowering.run"))
print("ready", flush=True)
while True: time.sleep(0.05); journal.write_event(events.Begin(name="pass.x")); journal.write_event(events.End(name="pass.x"))
"""


def test_events_are_progress_whatever_the_user_says(tmp_path: Path) -> None:
    """The stack is the same each time, but phases begin and end."""
    with program("-c", ADVANCING, cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = reprokit(
            "attach", str(process.pid), "--stalled-for", "600", "--json",
            "--output-dir", tmp_path / "out",
        )  # fmt: skip
    assert done.kind == "ok", done.out + done.err
    assert "its compiler advances" in done.json["verdict"]["reason"]
