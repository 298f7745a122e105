"""However a run ends, stacks are taken first, a pack is written, no process is left and no data is
lost.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.pack import reader
from tests.support.environments import clean_environ
from tests.support.processes import restore_signals, survivors, survivors_after_wait, wait_until
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit, reprokit_command

HANGS_IN_BACKEND = """
import os, subprocess, sys, torch
{before}
def backend(gm, inputs):
    open({mark!r}, "w").close()
    {body}
    return gm
def make():
    return (lambda x: x + 1), (torch.zeros(2),)
if __name__ == "__main__":
    torch.compile(make()[0], backend=backend)(*make()[1])
"""
BODIES = {
    "sleep": "import time; time.sleep(1000)",
    "loop": "while True: pass",
    "native code that holds the GIL": "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
    "stopped": "import signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "child": "subprocess.run(['sleep', '1000'])",
}


@pytest.mark.real
@pytest.mark.parametrize("body", ["native code that holds the GIL", "stopped"])
def test_stacks_of_a_hang(body: str, write: Any, tmp_path: Path) -> None:
    """py-spy and faulthandler record the position of the hang, also with the GIL held, and then all
    processes are killed.
    """
    mark, env = str(tmp_path / "mark"), clean_environ(HANG_MARK=uuid.uuid4().hex)
    script = write("hang.py", HANGS_IN_BACKEND.format(before="", mark=mark, body=BODIES[body]))
    options = ("--json", "--stall", "5", "--output-dir", tmp_path / "out")
    done = reprokit("capture", *options, "--", sys.executable, script, env=env)
    assert os.path.exists(mark)
    tools = check_stacks(done)
    if body != "stopped":
        assert tools.count("faulthandler") >= 3
        assert done.json["verdict"]["cause"] == "native-loop-holding-gil"
    else:
        assert any(m["what"] == "stacks" and "stopped" in m["why"] for m in done.json["missing"])
    assert survivors(env["HANG_MARK"]) == []


def test_stacks_of_a_hang_in_a_child(write: Any, tmp_path: Path, recorded: Recorder) -> None:
    """The pack has the stacks of the process that waits, and the command of its child."""
    mark = str(tmp_path / "mark")
    script = write("hang.py", HANGS_IN_BACKEND.format(before="", mark=mark, body=BODIES["child"]))
    done = recorded("--stall", "5", "--", sys.executable, script)
    assert check_stacks(done).count("faulthandler") >= 3
    evidence = reader.read_pack(Path(done.json["pack"])).read_json("evidence.json")
    assert "sleep 1000" in [p["command"] for p in evidence["processes"]]


def check_stacks(done: CallResult) -> list[str]:
    """Check a hang in the backend of the program, and return the tool of each of its dumps."""
    assert (done.status, done.kind) == (1, "hang"), done.out
    assert done.json["signature"]["title"].startswith("hang: backend | <user>:hang.backend")
    pack = reader.read_pack(Path(done.json["pack"]))
    dumps = {
        (d["tool"], d["number"]): d
        for d in pack.read_json("observation.json")["dumps"]
        if d["threads"]
    }
    tools = [tool for tool, _ in dumps]
    assert tools.count("py-spy") >= 3
    return tools


@pytest.mark.real
def test_processes_that_try_to_escape_are_killed(write: Any, tmp_path: Path) -> None:
    """Children in their own sessions, orphans, and processes that ignore SIGTERM are killed too."""
    before = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsubprocess.Popen(['sleep',"
        " '997'], start_new_session=True)\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():"
        " os._exit(0)\n    import time; time.sleep(1000)\n"
    )
    env = clean_environ(HANG_MARK=uuid.uuid4().hex)
    script = write(
        "hang.py",
        HANGS_IN_BACKEND.format(before=before, mark=str(tmp_path / "m"), body=BODIES["sleep"]),
    )
    options = ("--json", "--stall", "5", "--timeout", "100", "--output-dir", tmp_path / "out")
    done = reprokit("capture", *options, "--", sys.executable, script, env=env)
    assert done.kind == "hang"
    assert survivors(env["HANG_MARK"]) == []


def start_hang(
    tmp_path: Path, write: Any, env: dict[str, str], *words: str
) -> subprocess.Popen[str]:
    """Start a capture of a target that hangs, and wait until it hangs."""
    mark = tmp_path / "mark"
    script = write(
        "hang.py", HANGS_IN_BACKEND.format(before="", mark=str(mark), body=BODIES["sleep"])
    )
    command = reprokit_command(
        "capture",
        "--json",
        "--output-dir",
        str(tmp_path / "out"),
        *words,
        "--",
        sys.executable,
        str(script),
    )
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        preexec_fn=restore_signals,
    )
    assert wait_until(mark.exists), "the target never came to its hang"
    return process


@pytest.mark.real
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_leaves_a_pack(number: signal.Signals, write: Any, tmp_path: Path) -> None:
    """Ctrl-C during a hang gives a pack with the evidence so far, including stacks, and exit code
    130.
    """
    env = clean_environ(HANG_MARK=uuid.uuid4().hex)
    process = start_hang(tmp_path, write, env)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    # a traceback here belongs to the program
    assert "reprokit/host" not in err and "reprokit/cli" not in err
    result = json.loads(out)
    assert result["verdict"]["cause"] == "interrupted"
    assert result["verdict"]["phase"] == "backend"
    pack = reader.read_pack(Path(result["pack"]))
    assert any(n.startswith("stacks/1-py-spy") for n in pack.files)
    assert survivors(env["HANG_MARK"]) == []


@pytest.mark.long
def test_sigkill_of_reprokit_leaves_no_orphan_and_loses_nothing(write: Any, tmp_path: Path) -> None:
    """The guardian kills the target, and the journal and the graph are on disk."""
    env = clean_environ(HANG_MARK=uuid.uuid4().hex)
    process = start_hang(tmp_path, write, env)
    process.kill()
    process.communicate(timeout=200)
    assert survivors_after_wait(env["HANG_MARK"]) == []
    run = tmp_path / "out" / "run-001"
    events = [
        json.loads(line)
        for p in (run / "journal").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]
    assert "graph" in {e["ev"] for e in events}
    assert next((run / "graphs").glob("*/graph.py")).read_text()
    # and the directory can be used again
    again = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, "-c", "pass"
    )
    assert again.run_dir.name == "run-002"


WAITS = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(1000)"


def test_a_run_directory_in_use_is_refused(tmp_path: Path) -> None:
    """Two captures never use one directory: the second gets an error that names the first, and the
    first continues.
    """
    words = ("capture", "--output-dir", str(tmp_path / "out"), "--", sys.executable, "-c")
    process = subprocess.Popen(
        reprokit_command(*words, WAITS, str(tmp_path / "mark")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environ(),
        preexec_fn=restore_signals,
    )
    assert wait_until((tmp_path / "mark").exists), "the target never started"
    second = reprokit(*words, "pass")
    assert second.status == 2
    assert f"in use by reprokit, process {process.pid}" in second.err
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130


@pytest.mark.real("its program compiles until the deadline")
def test_a_compile_that_advances_is_slow_not_hung(write: Any, tmp_path: Path) -> None:
    """New graphs until the deadline give slow-compile, with the phase at the deadline."""
    script = write(
        "slow.py",
        "import torch\ni = 0\nwhile True:\n    i += 1\n    torch._dynamo.reset()\n    def f(x,"
        " c=i):\n        for j in range(60): x = x.sin() + (c + j)\n        return x\n   "
        " torch.compile(f, backend='aot_eager')(torch.zeros(2))\n",
    )
    done = reprokit(
        "capture",
        "--json",
        "--timeout",
        "10",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        script,
    )
    assert (done.status, done.kind) == (1, "slow-compile"), done.out
    assert done.json["verdict"]["phase"]


def test_a_program_that_runs_past_the_deadline_is_not_a_hang(
    write: Any, recorded: Recorder
) -> None:
    """A training loop outside the compiler that makes progress gives unknown, with a suggestion."""
    functions = "".join(f"def f{i}(): sum(range(9999))\n" for i in range(20))
    loop = "import random\nall = [" + ", ".join(f"f{i}" for i in range(20)) + "]\n"
    loop += "while True:\n    f(torch.zeros(2)); random.choice(all)()\n"
    script = write(
        "train.py",
        "import torch\nf = torch.compile(lambda x: x + 1, backend='eager')\n" + functions + loop,
    )
    # a busy machine needs over 10 s until the first graph is compiled
    done = recorded("--timeout", "30", "--", sys.executable, script)
    assert done.kind == "unknown", done.out
    assert "--timeout" in done.json["verdict"]["reason"]


def test_out_of_memory_in_the_compiler_is_named(write: Any, recorded: Recorder) -> None:
    """A real MemoryError is raised inside the compiler."""
    script = write(
        "oom.py",
        "import torch\ndef backend(gm, i):\n    bytearray(1 << 60)\ndef make():\n    return"
        " torch.nn.Identity(), (torch.zeros(2),)\ntorch.compile(lambda x: x + 1,"
        " backend=backend)(torch.zeros(2))\n",
    )
    done = recorded("--", sys.executable, script)
    assert (done.status, done.kind) == (1, "oom")
    assert done.json["signature"]["title"] == "oom: backend | MemoryError @ <user>:oom.backend"


@pytest.fixture
def small_memory() -> Any:
    """Create a control group of 600 MB, which needs root."""
    for top, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(top) / f"reprokit-test-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
            (group / limit).write_text(str(600 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        wait_until(lambda place=group: not (place / "cgroup.procs").read_text().strip(), 10)
        group.rmdir()
        return
    pytest.skip(
        "may not make a control group here; the rule itself is tested in tests/core/test_verdict.py"
    )


DAMAGES_HEAP = """
import torch

def both(flags):
    return torch.add(flags, flags, alpha=2)

compiled = torch.compile(both)
for length in range(90, 190):
    compiled(torch.arange(length) % 2 == 0)
"""
"""Compiled code writes eight bytes for each boolean; hunt#12 of the catalogue."""


@pytest.mark.real
def test_the_operator_that_damages_the_heap_is_named(write: Any, tmp_path: Path) -> None:
    """Glibc finds the damage anywhere, so the stack at the end does not show the operator."""
    script = write("script.py", DAMAGES_HEAP)
    words = ("--escalate", "--output-dir", tmp_path / "out", "--", sys.executable, script)
    done = reprokit("capture", "--json", *words)
    verdict = done.json["verdict"]
    assert (verdict["kind"], verdict["phase"]) == ("crash", "kernel-run"), verdict
    title = "crash: kernel-run | SIGABRT damaged heap | invalid write, aten.add"
    assert done.json["signature"]["title"] == title
    assert verdict["responsible"] == "torch"
    assert verdict["work"]["line"].endswith("script.py:5")
    assert done.json["ablation"] is None  # a run that passes shows nothing


@pytest.mark.real
def test_the_out_of_memory_killer_is_named(small_memory: Path, write: Any, tmp_path: Path) -> None:
    """The kernel's out-of-memory killer ends a process in a real control group."""
    script = write(
        "eat.py", "import torch, torch._dynamo\nx = [b'x' * (1 << 24) for _ in range(10000)]\n"
    )
    command = (
        f"echo $$ > {small_memory}/cgroup.procs; exec {sys.executable} {shlex.quote(str(script))}"
    )
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", "sh", "-c", command
    )
    assert (done.status, done.kind) == (1, "oom"), done.out
    assert done.json["verdict"]["cause"] == "killer"


def limit_files() -> None:
    """Limit the file size to 40 kB in this process and its children."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))


@pytest.mark.long
def test_files_that_cannot_grow(tmp_path: Path) -> None:
    """With a limit on file sizes there is a verdict and a clear message, no traceback, and each
    file that was written is complete.
    """
    words = (
        "capture",
        "--json",
        "--model",
        "llama-tiny",
        "--backend",
        "aot_eager",
        "--output-dir",
        tmp_path,
    )
    done = reprokit(*words, preexec_fn=limit_files)
    assert done.status in (0, 1, 3)
    assert done.json["verdict"]["kind"] in ("ok", "unknown")
    if done.json["pack"] is None:
        assert any(m["what"] == "pack" for m in done.json["missing"])
    else:
        reader.read_pack(Path(done.json["pack"]))
    for path in done.run_dir.rglob("*.draft"):
        pytest.fail(f"{path} is half a file")


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """Mount a real file system of 600 kB, which needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here; tests/cli/test_faults.py covers the same errors")
    yield disk
    subprocess.run(["umount", "-l", disk], check=False)


@pytest.mark.real
@pytest.mark.parametrize("free_kb", [0, 150, pytest.param(450, marks=pytest.mark.long)])
def test_a_full_disk(small_disk: Path, free_kb: int) -> None:
    """A disk that is full from the start or fills up later gives a one-line error or a verdict,
    never a traceback.
    """
    ballast = (600 - free_kb) * 1024
    (
        (small_disk / "ballast").write_bytes(b"x" * max(0, ballast - 8192))
        if free_kb
        else fill(small_disk / "ballast")
    )
    done = reprokit(
        "capture",
        "--model",
        "llama-tiny",
        "--backend",
        "aot_eager",
        "--output-dir",
        small_disk / "out",
    )
    assert done.status in (0, 1, 2, 3)
    if done.status == 2:
        assert done.err.strip().splitlines()[-1].startswith("reprokit: cannot")
    else:
        assert "no pack" in done.out, done.out
    assert survivors(str(small_disk)) == []


@pytest.mark.real
def test_a_disk_that_fills_up_before_the_dumps(write: Any, tmp_path: Path) -> None:
    """Nothing can be written at the stall: the verdict comes from memory, and missing data is
    reported.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        body = (
            f"file = open({str(disk / 'ballast')!r}, 'wb', buffering=0)\n    try:\n        while"
            " True: file.write(b'x' * 512)\n    except OSError: pass\n    import time;"
            " time.sleep(1000)"
        )
        script = write(
            "hang.py", HANGS_IN_BACKEND.format(before="", mark=str(tmp_path / "mark"), body=body)
        )
        words = (
            "capture",
            "--json",
            "--stall",
            "5",
            "--timeout",
            "100",
            "--output-dir",
            disk / "out",
        )
        done = reprokit(*words, "--", sys.executable, script)
        assert (done.status, done.kind, done.json["verdict"]["cause"]) == (
            1,
            "hang",
            "sleep",
        ), done.out
        if done.json["pack"] is None:  # the end of the target may free just enough space
            assert any(m["what"] == "pack" for m in done.json["missing"])
        else:
            reader.read_pack(Path(done.json["pack"]))
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


@pytest.mark.real
def test_a_colon_in_the_path_does_not_prevent_the_instrumentation(
    write: Any, tmp_path: Path
) -> None:
    """PYTHONPATH cannot have a path with a colon, so the agent is in a temporary folder, which is
    deleted.
    """
    script = write(
        "t.py", "import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.zeros(2))\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = clean_environ(TMPDIR=str(scratch))
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "a:b", "--", sys.executable, script, env=env
    )
    assert list((done.run_dir / "graphs").glob("*/graph.py"))
    assert not [p for p in scratch.iterdir() if p.name.startswith("reprokit-")]


def test_the_environments_deadline_is_the_default(tmp_path: Path) -> None:
    """TORCH_COMPILE_TIMEOUT is the default of --timeout."""
    env = clean_environ(TORCH_COMPILE_TIMEOUT="3")
    done = reprokit("capture", "--json", "--output-dir", tmp_path, "--", "sleep", "100", env=env)
    assert done.json["seconds"] < 60
    assert json.loads((done.run_dir / "run.json").read_text())["deadline_s"] == 3.0
