"""Real hangs: the report says why and in which phase, with stacks of every process, and no process
is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprokit.host.pack import reader
from tests.host.test_exports import check_speedscope, check_trace_events
from tests.support.environments import clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.processes import survivors, survivors_after_wait, wait_until
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit, reprokit_command

from ..hangs.kinds import EXPECTED

KINDS = Path(__file__).resolve().parents[1] / "hangs" / "kinds.py"
RANKS = """
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
ranks = [subprocess.Popen(sys.argv[1:], env={**environ, "RANK": rank}) for rank in "01"]
sys.exit(max(rank.wait() for rank in ranks))
"""
"""Start two ranks of a program, which meet at a free port."""
REAL = (
    "phase:bw_lowering",
    pytest.param("native_spin", marks=pytest.mark.long),  # test_ends.py has a real one
    pytest.param("stopped", marks=pytest.mark.long),
)
RECORDED = (
    "worker_sleep",
    "native_lock",
    "memory",
    "deadlock",
    "pipe",
    "filelock",
    "unroll_calls",
    "cxx_sleep",
    "phase:first_run",
)
"""With those of ``REAL``, one hang of each kind; ``python -m benchmarks run hangs`` runs them all."""


def words_of(kind: str, *words: str, stall: str = "5") -> list[str]:
    """Return the words of a capture of one program that hangs on purpose."""
    command = [sys.executable, str(KINDS), kind]
    if kind.startswith("gloo_"):
        command = [sys.executable, "-c", RANKS, *command]
    # its ranks wait outside the compiler
    words = ("--on-stall", "end", *words) if kind == "gloo_eager" else words
    return ["--no-trace", "--stall", stall, "--timeout", "200", *words, "--", *command]


def capture(
    kind: str, folder: Path, *words: str, env: dict[str, str] | None = None, stall: str = "5"
) -> CallResult:
    """Capture one program that hangs on purpose."""
    row = words_of(kind, *words, stall=stall)
    environ = clean_environ(**(env or {}))
    return reprokit("capture", "--json", "--output-dir", folder, *row, env=environ)


def check(kind: str, done: CallResult) -> dict[str, Any]:
    """Check that cause and phase are among the right ones, and return the verdict."""
    verdict: dict[str, Any] = done.json["verdict"]
    causes, phases = EXPECTED[kind]
    assert (done.status, verdict["kind"]) == (1, "hang"), done.out
    assert verdict["cause"] in causes and verdict["phase"] in phases, verdict
    return verdict


def check_pack(kind: str, done: CallResult) -> None:
    """Check the verdict, and that the pack has at least three dumps and both exports."""
    verdict = check(kind, done)
    assert verdict["detail"] in verdict["reason"] or verdict["detail"][:80] in verdict["reason"]
    pack = reader.read_pack(Path(done.json["pack"]))
    rounds = {d["number"] for d in pack.read_json("observation.json")["dumps"] if d["threads"]}
    assert len(rounds) >= 3
    exports = {"stacks.speedscope.json", "timeline.perfetto.json"}
    assert {"report.html", "report.json", "evidence.json", *exports} <= set(pack.files)
    check_speedscope(pack.read_json("stacks.speedscope.json"))
    check_trace_events(pack.read_json("timeline.perfetto.json"))
    assert all(f"`{name}`" in pack.files["README.md"].decode() for name in exports)
    if verdict["phase"] == "fx-passes":
        assert verdict["work"]["pass"] == "post_grad_custom_post_pass"


@pytest.mark.real("it compiles with Inductor until the hang, and reads the stacks of its processes")
@pytest.mark.parametrize("kind", REAL)
def test_cause_and_phase(kind: str, tmp_path: Path) -> None:
    """The stall ends the run; the cause and the phase are right, live and from the disk, at least
    three dumps were taken, and no process is left.
    """
    env = {"HANG_MARK": uuid.uuid4().hex}
    done = capture(kind, tmp_path, env=env)
    check_pack(kind, done)
    assert survivors(env["HANG_MARK"]) == []
    if kind != "stopped":  # a dump that failed leaves no file
        assert_judged_alike(done)
    if kind == "phase:bw_lowering":
        work = done.json["verdict"]["work"]
        assert work["direction"] == "backward" and work["node"].startswith("node ")


@pytest.mark.parametrize("kind", RECORDED)
def test_cause_and_phase_of_more_hangs(kind: str, recorded: Recorder) -> None:
    """The cause and the phase are right, and the pack has the dumps and both exports."""
    done = recorded(*words_of(kind))
    check_pack(kind, done)
    verdict = done.json["verdict"]
    if kind == "phase:first_run":
        assert "torch.ops.hangs.slow" in verdict["work"]["kernel"]
    if kind == "filelock":
        assert "held.lock" in verdict["detail"] and "holds it" in verdict["detail"]
    if kind == "unroll_calls":
        assert "kinds.py" in verdict["detail"] and "unrolls a loop" in verdict["detail"]


def check_ranks(kind: str, done: CallResult) -> dict[str, Any]:
    """Check that each rank has stacks, the one that differs first, and return the verdict."""
    verdict = check(kind, done)
    report = reader.read_pack(Path(done.json["pack"])).read_json("report.json")
    assert [s["who"] for s in report["stacks"]] == ["rank 1", "rank 0"]
    return verdict


@pytest.mark.real("it starts two ranks with torch")
def test_several_ranks(tmp_path: Path) -> None:
    """Each rank has a journal and stacks; the report lists the rank that differs first."""
    verdict = check_ranks("gloo_eager", capture("gloo_eager", tmp_path))
    assert verdict["path"][0].startswith("rank 1 (process ")
    assert "waits in all_reduce" in verdict["path"][1]


def test_several_ranks_in_compiled_code(recorded: Recorder) -> None:
    """The same where a rank waits in a collective of compiled code."""
    verdict = check_ranks("gloo_compiled", recorded(*words_of("gloo_compiled")))
    assert verdict["path"][0].startswith("rank 1 (process ") and "waits in" in verdict["path"][1]


def test_a_factory_that_hangs_is_run_again_for_more_evidence(recorded: Recorder) -> None:
    """The issue has the time of the eager run and whether backend="eager" hangs, because
    maintainers ask for them first. --no-escalate leaves them out.
    """
    sample = KINDS.parents[2] / "samples" / "hang.py"
    words = ("--stall", "5", "--model", f"{sample}:make")
    done = recorded(*words, out="escalated")
    issue = reader.read_pack(Path(done.json["pack"])).files["issue.md"].decode()
    assert (
        "cause `lock-deadlock`" in issue and "pass at work: `post_grad_custom_post_pass`" in issue
    )
    assert "Without `torch.compile`: it passed in" in issue
    assert 'with backend="eager": it passes in' in issue
    assert "graph_transform_observer.py" in issue
    left = recorded(*words, "--no-escalate", out="left")
    assert "backend=" not in reader.read_pack(Path(left.json["pack"])).files["issue.md"].decode()
    assert left.json["signature"] == done.json["signature"]


FAULTS = {
    "refused": (
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions'"
        " >&2\nexit 1\n"
    ),
    "hangs": "#!/bin/sh\nexec sleep 100\n",
}


def broken_py_spy(fault: str, folder: Path) -> dict[str, str]:
    """Return the variables with which the tool of the stacks has a fault."""
    tool = folder / "py-spy"
    tool.write_text(FAULTS[fault])
    tool.chmod(0o755)
    return {"REPROKIT_PY_SPY": str(tool)}


def check_other_tool(done: CallResult) -> None:
    """Check that the hang is known without py-spy, and that the report says that it failed."""
    check("python_loop", done)
    assert done.json["signature"]["title"].startswith(
        "hang: fx-passes | <user>:kinds.hang_python_loop"
    )
    assert any(m["what"] == "stacks" and "py-spy" in m["why"] for m in done.json["missing"])


@pytest.mark.real
def test_py_spy_that_does_not_work(tmp_path: Path) -> None:
    """Then the stacks are faulthandler's; the report says which tool failed, and why."""
    env = broken_py_spy("refused", tmp_path)
    check_other_tool(capture("python_loop", tmp_path / "out", env=env))


@pytest.mark.long
def test_py_spy_that_hangs(tmp_path: Path) -> None:
    """Then the stacks are faulthandler's too, and the report says it."""
    env = broken_py_spy("hangs", tmp_path)
    check_other_tool(capture("python_loop", tmp_path / "out", env=env))


@pytest.mark.long
def test_a_target_with_a_thousand_threads_that_prints_and_turns_the_clock(
    write: Any, tmp_path: Path
) -> None:
    """More threads than are read, endless output, a clock that jumps, or a different user do not
    change the verdict.
    """
    script = write(
        "odd.py",
        "import os, random, sys, threading, time, torch\nsys.path.insert(0,"
        f" {str(KINDS.parents[2])!r})\nfrom tests.hangs.kinds import in_pass,"
        " hang_deadlock\nthreading.stack_size(1 << 16)\nfor _ in range(1100):"
        " threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\ndef chatter():\n"
        "    while True: os.write(1, b'x' * (1 << 20)); time.sleep(0.1)\ndef hang():\n   "
        " threading.Thread(target=chatter, daemon=True).start()\n    time.time = lambda:"
        " random.random() * 4e9\n    if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n   "
        " hang_deadlock()\nin_pass(hang)\n",
    )
    tmp_path.chmod(0o777)
    options = (
        "--json",
        "--no-trace",
        "--stall",
        "5",
        "--timeout",
        "200",
        "--output-dir",
        str(tmp_path / "out"),
    )
    command = reprokit_command("capture", *options, "--", sys.executable, str(script))
    environ = clean_environ(TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), HOME=str(tmp_path))
    done = subprocess.run(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    result = json.loads(done.stdout)
    assert (result["verdict"]["kind"], result["verdict"]["cause"]) == ("hang", "lock-deadlock"), (
        result
    )
    printed = Path(result["run_dir"]) / "logs" / "stdout.txt"
    assert printed.stat().st_size < 80 << 20


@pytest.mark.real
def test_reprokit_killed_in_a_hang_can_be_packed(write: Any, tmp_path: Path) -> None:
    """SIGKILL of the watchdog leaves no process of the run, also none that called setsid or was
    stopped, and the files on disk, the journal and the graph among them, make a pack. The next
    capture uses the same folder.
    """
    env = clean_environ(HANG_MARK=uuid.uuid4().hex)
    seconds = str(uuid.uuid4().int % 10**6 + 10**6)
    script = write(
        "hang.py",
        f"import os, signal, subprocess, sys, time\nsys.path.insert(0, {str(KINDS.parents[2])!r})\n"
        "from tests.hangs.kinds import in_pass\n"
        "def hang():\n"
        "    subprocess.Popen(['sleep', '999'], start_new_session=True)\n"
        f"    subprocess.Popen(['sleep', {seconds!r}], start_new_session=True, env={{}})\n"
        "    os.kill(subprocess.Popen(['sleep', '999']).pid, signal.SIGSTOP)\n"
        f"    open({str(tmp_path / 'mark')!r}, 'w').close()\n    time.sleep(1000)\n"
        "in_pass(hang)\n",
    )
    out = tmp_path / "out"
    command = reprokit_command(
        "capture", "--stall", "8", "--output-dir", str(out), "--", sys.executable, str(script)
    )
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    assert wait_until((tmp_path / "mark").exists)
    looks = out / "run-001" / "stacks"  # dumps from before the hang show other places
    assert wait_until(lambda: any('"hang"' in p.read_text() for p in looks.glob("*-py-spy-*.json")))
    process.kill()
    process.wait()
    assert survivors_after_wait(env["HANG_MARK"]) == []
    assert wait_until(
        lambda: (
            not [
                p
                for p in psutil.process_iter(["cmdline"])
                if p.info["cmdline"] == ["sleep", seconds]
            ]
        ),
        30,
    )
    done = reprokit("pack", "--json", out / "run-001")
    assert (done.status, done.json["verdict"]["cause"]) == (130, "interrupted")
    assert done.json["verdict"]["phase"] == "fx-passes"
    pack = reader.read_pack(Path(done.json["pack"]))
    assert any(n.startswith("stacks/") for n in pack.files) and "report.html" in pack.files
    events = [
        json.loads(line)["ev"]
        for path in (out / "run-001" / "journal").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert "graph" in events
    assert next((out / "run-001" / "graphs").glob("*/graph.py")).read_text()
    command = (sys.executable, "-c", "pass")
    again = reprokit("capture", "--json", "--output-dir", out, "--", *command)
    assert again.run_dir.name == "run-002"


@pytest.mark.long
def test_a_finished_run_packs_to_the_same_verdict(tmp_path: Path) -> None:
    """reprokit pack reaches the same verdict from the disk as capture did live."""
    first = capture("self_deadlock", tmp_path)
    again = reprokit("pack", "--json", first.run_dir)
    assert again.status == first.status == 1
    assert again.json["signature"] == first.json["signature"]
    assert again.json["verdict"] == first.json["verdict"]


@pytest.mark.real
def test_a_target_that_damages_its_own_journal_gives_a_pack(write: Any, tmp_path: Path) -> None:
    """Events of any type, a pipe, a link or a broken dump in the run directory: there is always a
    verdict.
    """
    script = write(
        "odd.py",
        "import os, torch\nimport torch._dynamo\nrun = os.environ['REPROKIT_RUN_DIR']\nrows ="
        ' [\'{"ev":"begin","tid":[1],"name":3}\', \'{"ev":"progress","count":"abc"}\','
        ' \'{"ev":"exception","chain":[5]}\',\n        \'{"ev":"process","rank":"\\u00b2"}\','
        ' \'{"ev":"graph","nodes":"x"}\', \'[\' * 9999, \'{"ev":"config","changed":3}\',\n       '
        ' \'{"ev":"split","left_out":3,"plan":4}\', \'{"ev":"simulated_ranks"}\','
        ' \'{"ev":"graph","n":3,"calls":5}\']\nopen(f\'{run}/journal/{os.getpid()}.jsonl\','
        " 'a').write('\\n'.join(rows) + '\\n')\nos.mkfifo(f'{run}/journal/77.jsonl');"
        " os.mkfifo(f'{run}/stacks/faulthandler-78.txt')\nos.symlink('/dev/zero',"
        " f'{run}/journal/79.now'); open(f'{run}/stacks/1-py-spy-5.json',"
        " 'w').write('[1]')\ntorch.compile(lambda x: x + 1,"
        " backend='eager')(torch.ones(2))\n",
    )
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    assert "report.html" in reader.read_pack(Path(done.json["pack"])).files
    again = reprokit("pack", "--json", done.run_dir)
    assert (again.status, again.kind) == (0, "ok"), again.err


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_that_is_not_a_run_directory_is_refused(folder: str, tmp_path: Path) -> None:
    """One line, exit code 2."""
    done = reprokit("pack", tmp_path / folder)
    assert (
        done.status == 2
        and "is not a run directory" in done.err
        and len(done.err.splitlines()) == 1
    )


@pytest.mark.long
def test_a_healthy_compile_on_an_overloaded_machine_is_not_a_hang(tmp_path: Path) -> None:
    """Six processes spin on the target's only CPU, and the stall is only six seconds."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})  # other tests use the other CPUs
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        done = capture("slow_breaks", tmp_path, stall="6")
    finally:
        os.sched_setaffinity(0, usual)
        for process in load:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert done.kind in ("ok", "slow-compile"), done.out
