"""The pack is written whatever happens around a capture: closed streams, limits, inherited signals,
odd names, daemons.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.pack import reader
from tests.support.environments import clean_environ, with_small_torch
from tests.support.processes import restore_signals, survivors, survivors_after_wait, wait_until
from tests.support.reprokit_calls import reprokit, reprokit_command

PRINTS = """
import os, sys, torch
for number in (1, 2):
    for _ in range(200):
        try: os.write(number, b"x" * 500 + bytes([10]))
        except OSError: pass
sys.exit(7)
"""
"""A program that prints more than a pipe holds and exits with its own status: the verdict is unknown,
exit code 3.
"""


def packs(folder: Path) -> list[Path]:
    """Return the packs below a folder, and check that each can be read."""
    tarballs = sorted(folder.rglob("*.tar.gz"))
    for path in tarballs:
        reader.read_pack(path)
    return tarballs


def wait_for_end(process: subprocess.Popen[Any], limit_s: float = 120) -> int:
    try:
        return process.wait(limit_s)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("redirection", "as_json"),
    [
        pytest.param("2>&1 | head -1", False, marks=pytest.mark.long),
        ("2>&1 | head -1", True),
        pytest.param("2>/dev/full", False, marks=pytest.mark.long),
        pytest.param("2>/dev/full", True, marks=pytest.mark.long),
        (">/dev/full", False),
        pytest.param(">/dev/full", True, marks=pytest.mark.long),
        ("2>&-", False),
        pytest.param("2>&-", True, marks=pytest.mark.long),
        pytest.param(">&-", False, marks=pytest.mark.long),
        (">&-", True),
        pytest.param(">&- 2>&-", False, marks=pytest.mark.long),
        pytest.param(">&- 2>&-", True, marks=pytest.mark.long),
        ("<&- >&- 2>&-", False),
        pytest.param("<&- >&- 2>&-", True, marks=pytest.mark.long),
        ("2>&1 | true", False),
        pytest.param("2>&1 | true", True, marks=pytest.mark.long),
    ],
)
def test_a_closed_stream_does_not_prevent_the_pack(
    redirection: str, as_json: bool, tmp_path: Path
) -> None:
    """Printing fails from the first line on, or later: the program runs to its end, and its pack
    and status are the usual ones.
    """
    status = tmp_path / "status"
    words = reprokit_command(
        "capture", *(["--json"] if as_json else []), "--output-dir", str(tmp_path / "out")
    )
    line = f'{{ "$@"; echo $? 3>&- >{shlex.quote(str(status))}; }} {redirection}'
    shell = subprocess.Popen(
        ["bash", "-c", line, "bash", *words, "--", sys.executable, "-c", PRINTS],
        env=clean_environ(PYTHONPATH=with_small_torch(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    shell.communicate(timeout=120)
    assert wait_until(lambda: status.exists() and status.read_text().strip(), 60)
    assert status.read_text().strip() == "3"
    (pack,) = packs(tmp_path)
    logs = reader.read_pack(pack).files
    assert logs["logs/stdout.txt"].count(b"\n") == logs["logs/stderr.txt"].count(b"\n") == 200


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_that_is_closed(as_json: bool, write: Any, tmp_path: Path) -> None:
    """The other end of the terminal is closed, with SIGHUP and EIO: the program gets the signal,
    the run can be packed, and the exit status is 130.
    """
    mark = tmp_path / "mark"
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex, TERM="xterm")
    script = write(
        "waits.py",
        f"import sys, time\nopen({str(mark)!r}, 'w').close()\nwhile True:\n    print('x');"
        " time.sleep(0.05)\n",
    )
    words = reprokit_command(
        "capture", *(["--json"] if as_json else []), "--output-dir", str(tmp_path / "out")
    )
    status = tmp_path / "status"
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            restore_signals()
            os.setpgid(0, 0)
        finally:
            # the terminal belongs to this process, as to a shell: SIGHUP comes from the kernel
            os.execvpe(words[0], [*words, "--", sys.executable, str(script)], env)
    assert wait_until(mark.exists)
    os.close(terminal)
    _, raw = os.waitpid(pid, 0)
    status.write_text(str(os.waitstatus_to_exitcode(raw)))
    assert status.read_text() == "130"
    assert reprokit("pack", tmp_path / "out" / "run-001").status == 130
    assert len(packs(tmp_path)) == 1
    assert survivors(env["FAULT_MARK"]) == []


def ignore_children() -> None:
    """Ignore SIGCHLD, as ``trap '' CHLD`` in a shell, which survives exec."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def test_a_parent_that_ignores_sigchld(tmp_path: Path) -> None:
    """Exit statuses are known, and the program ignores SIGCHLD as without reprokit."""
    says = "import signal, sys, torch; print(signal.getsignal(signal.SIGCHLD).name); sys.exit(7)"
    done = reprokit(
        "capture",
        "--json",
        "--output-dir",
        tmp_path,
        "--",
        sys.executable,
        "-c",
        says,
        env=clean_environ(PYTHONPATH=with_small_torch(tmp_path)),
        preexec_fn=ignore_children,
    )
    assert done.status == 3 and len(packs(tmp_path)) == 1
    assert json.loads((done.run_dir / "run.json").read_text())["exit_status"] == 7
    assert (done.run_dir / "logs" / "stdout.txt").read_text() == "SIG_IGN\n"


LIMITS: dict[str, tuple[int, int]] = {
    "64 files": (resource.RLIMIT_NOFILE, 64),
    "16 files": (resource.RLIMIT_NOFILE, 16),
    "400 MB": (resource.RLIMIT_AS, 400_000 << 10),
    "150 MB": (resource.RLIMIT_AS, 150_000 << 10),
    "60 MB": (resource.RLIMIT_AS, 60_000 << 10),
    "40 kB a file": (resource.RLIMIT_FSIZE, 40_000),
    "1 kB a file": (resource.RLIMIT_FSIZE, 1_000),
}
QUICK_LIMITS = ("16 files", "60 MB", "400 MB", "1 kB a file")


def limited(limit: str) -> Callable[[], None]:
    """Set one limit in a child."""
    which, most = LIMITS[limit]

    def set_limit() -> None:
        resource.setrlimit(which, (most, most))

    return set_limit


COMPILES = "import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.zeros(2))\n"
NEEDS_MUCH = """
import tempfile
for _ in range(200):
    print("x" * 500)
files = [tempfile.TemporaryFile() for _ in range(80)]
memory = bytes(500_000_000)
"""
"""A program without torch that exceeds each of the limits."""


@pytest.mark.parametrize(
    ("limit", "program"),
    [
        *(
            pytest.param(
                limit,
                NEEDS_MUCH,
                id=limit,
                marks=() if limit in QUICK_LIMITS else pytest.mark.long,
            )
            for limit in LIMITS
        ),
        pytest.param("64 files", COMPILES, marks=pytest.mark.real, id="64 files, torch"),
        pytest.param("16 files", COMPILES, marks=pytest.mark.long, id="16 files, torch"),
        pytest.param("400 MB", COMPILES, marks=pytest.mark.long, id="400 MB, torch"),
        pytest.param("150 MB", COMPILES, marks=pytest.mark.long, id="150 MB, torch"),
        pytest.param("60 MB", COMPILES, marks=pytest.mark.long, id="60 MB, torch"),
        pytest.param("40 kB a file", COMPILES, marks=pytest.mark.real, id="40 kB a file, torch"),
        pytest.param("1 kB a file", COMPILES, marks=pytest.mark.long, id="1 kB a file, torch"),
    ],
)
def test_a_limit_leaves_a_pack_or_a_clear_line(
    limit: str, program: str, write: Any, tmp_path: Path
) -> None:
    """With a limit on files, memory or file sizes there is no traceback, no hang and no process
    left.
    """
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex)
    script = write("t.py", program)
    words = reprokit_command(
        "capture", "--output-dir", str(tmp_path / "out"), "--", sys.executable, str(script)
    )
    done = subprocess.run(
        words,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        preexec_fn=limited(limit),
        check=False,
    )
    ours = [row for row in done.stderr.splitlines() if row.startswith("reprokit: ")]
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert "reprokit/host" not in done.stderr and "reprokit/cli" not in done.stderr, done.stderr
    assert "defect" not in done.stdout + done.stderr, done.stdout + done.stderr
    is_said = "no pack    memory ran out" in done.stdout
    assert packs(tmp_path) or is_said or (done.returncode in (2, 3) and ours), (
        done.stdout + done.stderr
    )
    assert survivors(env["FAULT_MARK"]) == []


@pytest.mark.parametrize(
    "most", [1, 3, 5, 8, *(pytest.param(most, marks=pytest.mark.long) for most in (2, 4))]
)
def test_a_limit_on_processes(most: int, tmp_path: Path) -> None:
    """When no process or thread can be started, there is a verdict or a one-line error, and no
    process continues without the watchdog.
    """
    if os.getuid() or not shutil.which("setpriv"):
        pytest.skip("takes root, which starts processes as another user")
    tmp_path.chmod(0o777)
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex)
    words = reprokit_command(
        "capture", "--output-dir", str(tmp_path / "out"), "--", "sh", "-c", "echo x; exit 7"
    )
    # a user without other processes who can read the folder of the interpreter
    user = (
        "setpriv",
        f"--reuid={65000 + most}",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
        "--",
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    done = subprocess.run(
        [*user, *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limit,
        check=False,
    )
    ours = [row for row in done.stderr.splitlines() if row.startswith("reprokit: ")]
    assert "reprokit/host" not in done.stderr and "defect" not in done.stderr, done.stderr
    is_judged = done.returncode == 3 and "with exit status 7" in done.stdout
    assert is_judged or (done.returncode == 2 and ours), done.stdout + done.stderr
    assert survivors(env["FAULT_MARK"]) == []


def test_file_names_that_a_pack_cannot_have(write: Any, tmp_path: Path) -> None:
    """With newlines, bytes that are not text, and very long names in the run directory, the pack
    can be read.
    """
    script = write(
        "names.py",
        "import os, torch\nplace = os.fsencode(os.environ['REPROKIT_RUN_DIR']) + b'/logs/'\nnames ="
        " [b'a\\nb.txt', b'\\xff\\xfe.txt', b'\\x1b[31mred.log', b'x' * 251 + b'.txt',"
        " 'e\\u0301\\u202e.txt'.encode(), b'back\\\\slash.txt', b' .txt', b'a\\tb.txt']\nfor name"
        " in names: open(place + name, 'wb').write(b'kept ' + str(len(name)).encode())\ndeep ="
        " place + b'/'.join([b'd' * 60] * 10)\nos.makedirs(deep)\nopen(deep + b'/deep.txt',"
        " 'w').write('kept deep')\n",
    )
    done = reprokit(
        *("capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script),
        env=clean_environ(PYTHONPATH=with_small_torch(tmp_path)),
    )
    pack = reader.read_pack(Path(done.json["pack"]))
    assert sum(data.startswith(b"kept ") for data in pack.files.values()) == 9
    assert reprokit("show", done.json["pack"]).status == 0


DAEMON = """
import os, subprocess, sys, time
def daemon(seconds):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", seconds], {})
        os._exit(0)
    os.wait()
daemon(sys.argv[1])
subprocess.run(["setsid", "-f", "env", "-i", "sleep", sys.argv[1]], check=True)
open(sys.argv[2], "w").close()
time.sleep(float(sys.argv[3]))
"""


def sleepers(seconds: str) -> list[str]:
    """Return the living processes that sleep for this time."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                pids.append(path.parent.name)
    return pids


def start_daemons(
    write: Any, tmp_path: Path, env: dict[str, str], wait_s: str
) -> tuple[subprocess.Popen[bytes], str]:
    """Capture a program that leaves two daemons with an empty environment."""
    seconds, mark = f"1{uuid.uuid4().int % 10**9:09d}", tmp_path / "mark"
    script = write("daemon.py", DAEMON)
    words = (
        "capture",
        "--output-dir",
        str(tmp_path / "out"),
        "--",
        sys.executable,
        str(script),
        seconds,
        str(mark),
    )
    process = subprocess.Popen(
        [*reprokit_command(*words), wait_s],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=restore_signals,
    )
    assert wait_until(mark.exists) and wait_until(lambda: len(sleepers(seconds)) == 2)
    return process, seconds


@pytest.mark.parametrize("end", ["by itself", "SIGINT", "SIGKILL"])
def test_daemons_without_the_mark_are_killed(end: str, write: Any, tmp_path: Path) -> None:
    """A daemon with two forks, its own session and an empty environment is killed with the run,
    however the run ends.
    """
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex)
    process, seconds = start_daemons(write, tmp_path, env, "1" if end == "by itself" else "1000")
    if end != "by itself":
        process.send_signal(signal.Signals[end])
    wait_for_end(process)
    assert wait_until(lambda: not sleepers(seconds), 30)
    assert survivors_after_wait(env["FAULT_MARK"]) == []
    assert end == "SIGKILL" or (tmp_path / "out" / "run-001" / "run.json").is_file()


def test_sigkill_leaves_no_copy_of_the_agent(write: Any, tmp_path: Path) -> None:
    """The guardian deletes the private files of the run, and the files of the program stay."""
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex)
    process, _ = start_daemons(write, tmp_path, env, "1000")
    run = tmp_path / "out" / "run-001"
    assert (run / "agent").is_dir()
    process.kill()
    process.wait()
    assert wait_until(lambda: not (run / "agent").exists(), 30)
    assert (run / "logs" / "stdout.txt").exists()


def test_a_later_run_deletes_remaining_files(tmp_path: Path) -> None:
    """After reprokit and its guardian were killed together, the next command in that folder deletes
    the copies of the agent.
    """
    left = tmp_path / "run-001" / "agent" / "_reprokit"
    left.mkdir(parents=True)
    results = tmp_path / "run-001" / "results" / "1"
    own = tmp_path / "run-001" / "graphs" / "agent"
    for folder in (own, results):
        folder.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere" / "agent" / "_reprokit"
    elsewhere.mkdir(parents=True)
    (tmp_path / "run-001" / "link").symlink_to(elsewhere.parent.parent)
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path, "--", sys.executable, "-c", "pass"
    )
    assert done.run_dir.name == "run-002"
    assert elsewhere.exists()  # a link of the target is not followed
    assert not left.parent.exists() and not results.parent.exists() and own.exists()


SLOW_SOURCE = """
template<int N> struct F { static constexpr unsigned long long v = F<N - 1>::v * 3 + F<N - 2>::v; };
template<> struct F<0> { static constexpr unsigned long long v = 1; };
template<> struct F<1> { static constexpr unsigned long long v = 1; };
constexpr unsigned long long slow(unsigned long long n) { unsigned long long s = 0; for (unsigned long long i = 0; i < n; ++i) s = s * 31 + i; return s; }
constexpr auto value = slow(4000000000ull);
int main() { return value + F<800>::v; }
"""


@pytest.mark.parametrize(
    "end", [pytest.param("--timeout", marks=pytest.mark.long), "SIGINT", "SIGKILL"]
)
def test_a_compiler_that_is_killed_leaves_no_temporary_files(
    end: str, write: Any, tmp_path: Path
) -> None:
    """g++ deletes its files in /tmp after SIGTERM; SIGKILL would leave them."""
    source, scratch = write("slow.cpp", SLOW_SOURCE), tmp_path / "scratch"
    scratch.mkdir()
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex, TMPDIR=str(scratch))
    compiles = (
        "g++",
        "-std=c++20",
        "-fconstexpr-ops-limit=99999999999",
        "-fconstexpr-loop-limit=2000000000",
    )
    build = (
        "import subprocess;"
        f" subprocess.run({[*compiles, str(source), '-o', str(tmp_path / 'slow')]!r})"
    )
    words = [
        "capture",
        "--output-dir",
        str(tmp_path / "out"),
        *(["--timeout", "5"] if end == "--timeout" else []),
    ]
    process = subprocess.Popen(
        reprokit_command(*words, "--", sys.executable, "-c", build),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=restore_signals,
    )
    assert wait_until(lambda: list(scratch.glob("cc*.s")), 60)
    if end != "--timeout":
        process.send_signal(signal.Signals[end])
    wait_for_end(process)
    assert survivors_after_wait(env["FAULT_MARK"]) == []
    assert wait_until(lambda: not list(scratch.glob("cc*")), 20), list(scratch.iterdir())
