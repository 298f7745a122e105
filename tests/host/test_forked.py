"""The probe server is tested with real child processes and real torch: a probe that is killed
affects neither the server nor the next probe.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprokit.core.experiments import condition_lines, known_conditions
from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.records.finding import Signature
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.host.probe import client, fresh_process
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits
from tests.support.processes import survivors_after_wait

pytestmark = pytest.mark.real

NOTHING = Signature("", "", ALGORITHM)
COMPILE = (
    "import torch\ndef backend(gm, inputs):\n    {}\n    return gm\ntorch.compile(lambda x:"
    " x.relu() + 1, backend=backend)(torch.randn(8))\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.ProbeServer]:
    with client.ProbeServer(
        tmp_path_factory.mktemp("server"), sys.executable, "aot"
    ) as running_server:
        yield running_server


def probe(
    server: client.ProbeServer, text: str, is_eager: bool = False, **limits: object
) -> CandidateResult:
    wanted = ProbeLimits(**{"deadline_s": 60.0, **limits})  # type: ignore[arg-type]
    outcome, folder = server.run_program(text, wanted, is_eager)
    return fresh_process.judge_candidate(
        fresh_process.candidate_request(folder / "repro.py", sys.executable, wanted),
        outcome,
        folder,
        NOTHING,
    )


def test_a_program_with_a_hash_seed_is_not_started_again(tmp_path: Path) -> None:
    """The server has the seed. A child that starts itself again would be a second server."""
    (condition,) = (c for c in known_conditions._OF_ENVIRONMENT if c.name == "hash seed")
    lines = "\n".join(condition.fixed[1].fixed_by)
    seed = condition_lines.hash_seed_of(lines)
    text = f"{lines}\n" + COMPILE.format("raise KeyError(hash('a'))")
    with client.ProbeServer(tmp_path, sys.executable, "aot", hash_seed=seed) as server:
        titles = {probe(server, text).signature.title for _ in range(2)}
    assert seed == "2" and len(titles) == 1 and "KeyError" in titles.pop()


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("pass", "ok", ""),
        ("raise KeyError('buf7')", "exception", "KeyError: 'buf#'"),
        ("import ctypes; ctypes.string_at(0)", "crash", "SIGSEGV"),
        ("import os; os.abort()", "crash", "SIGABRT"),
        ("torch.empty(1 << 50)", "oom", "can't allocate memory"),
        ("import sys; sys.exit(3)", "unknown", "exit"),
    ],
)
def test_each_end_is_judged_as_in_a_capture(
    server: client.ProbeServer, body: str, kind: str, words: str
) -> None:
    """The same rules judge a forked child as a capture, and eager passes in the same server."""
    text = COMPILE.format(body)
    judged = probe(server, text)
    assert judged.verdict.kind == kind and words in judged.signature.title
    assert probe(server, text, is_eager=True).verdict.kind == "ok"


def test_a_forked_result_is_that_of_a_fresh_process(
    server: client.ProbeServer, tmp_path: Path
) -> None:
    """A warm and a fresh process give the same signature."""
    text = COMPILE.format("raise RuntimeError('cold and warm')")
    warm = probe(server, text)
    fresh = fresh_process.run_in_fresh_process(
        text, sys.executable, tmp_path / "cold", NOTHING, ProbeLimits(60.0)
    )
    assert (
        warm.signature == fresh.signature and warm.verdict.phase == fresh.verdict.phase == "backend"
    )


def test_isolated_processes_compare_their_results(tmp_path: Path) -> None:
    """The compiled run of a program reads the results of its eager run, which only it can write."""
    limits = ProbeLimits(60.0, compares=True, isolation=Isolation(cwd=str(tmp_path)))
    text = COMPILE.format("return lambda x: [x + 2]")
    judged = fresh_process.run_in_fresh_process(
        text, sys.executable, tmp_path / "cold", NOTHING, limits
    )
    assert judged.verdict.kind == "wrong-result", judged.verdict


def test_a_program_does_not_inherit_the_future_imports_of_the_agent(
    server: client.ProbeServer,
) -> None:
    """An annotation with a name that does not exist fails, as it does in a fresh process."""
    text = "import torch\ndef f(x: Any): pass\n"
    judged = probe(server, text)
    assert "NameError" in judged.signature.title


def test_a_hang_is_killed_at_its_deadline_with_its_stacks(server: client.ProbeServer) -> None:
    """A loop in a backend is a hang in phase backend, named by its frames, and no process is
    left.
    """
    judged = probe(
        server,
        COMPILE.format("import time\n    while True: time.sleep(0.01)"),
        deadline_s=3.0,
        wants_stacks=True,
    )
    assert judged.verdict.kind == "hang" and ".backend <" in judged.signature.title


def test_the_compile_stops_after_its_phase(server: client.ProbeServer) -> None:
    """The code after the requested phase is not reached."""
    text = (
        "import torch\nf = torch.compile(lambda x: x.relu())\nf(torch.randn(8))\nraise"
        " SystemExit(7)\n"
    )
    assert probe(server, text, stop="aot").verdict.kind == "ok"


def test_a_probe_has_the_threads_of_a_process_of_its_own(server: client.ProbeServer) -> None:
    """The server uses one thread, but a failure may need two."""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.get_num_threads())"],
        capture_output=True,
        text=True,
        check=True,
    )
    outcome, folder = server.run_program(
        "import torch\nprint(torch.get_num_threads())\n", ProbeLimits(60.0)
    )
    assert (
        folder / "logs" / "stdout.txt"
    ).read_text().strip() == done.stdout.strip() and outcome.exit_status == 0


def test_the_server_does_the_work_that_is_equal_in_all_children(
    server: client.ProbeServer,
) -> None:
    """A child does not compile Dynamo's expression of skipped folders again, nor time its guards."""
    text = (
        "import torch\nfrom torch._dynamo import guards, trace_rules\n"
        "own = [f for f in trace_rules.SKIP_DIRS if '/_reprokit/' in f]\n"
        "raise SystemExit(len(own) * 10 + int(guards.profile_guard_manager(None, {}, 1)))\n"
    )
    outcome, _ = server.run_program(text, ProbeLimits(60.0))
    assert outcome.exit_status == 40


def test_children_that_leave_the_group_are_killed(server: client.ProbeServer) -> None:
    """A probe may start processes in their own sessions and exit."""
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"
    text = (
        "import subprocess, os\nsubprocess.Popen(['sleep', '1000'], start_new_session=True,"
        f" env={{**os.environ, 'MARK': '{mark}'}})\npid = os.fork()\nif pid == 0:\n    os.setsid();"
        f" os.environ['MARK'] = '{mark}'\n    os.execvp('sleep', ['sleep', '1000'])\n"
    )
    assert probe(server, text).verdict.kind == "ok"
    assert survivors_after_wait(mark) == []


def test_probes_that_run_at_once_do_not_disturb_each_other(server: client.ProbeServer) -> None:
    """Each has its own end, and the strays of one are killed while the other runs."""
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"
    leaves = (
        "import subprocess, os\nsubprocess.Popen(['sleep', '1000'],"
        f" env={{**os.environ, 'MARK': '{mark}'}})\n"
    )
    runs = "import time\ntime.sleep({})\nprint('ended')\nraise SystemExit({})\n"
    with ThreadPoolExecutor(4) as pool:
        slow = pool.submit(server.run_program, runs.format(4, 3), ProbeLimits(60.0))
        stuck = pool.submit(server.run_program, runs.format(600, 0), ProbeLimits(6.0))
        outcomes = [server.run_program(leaves, ProbeLimits(60.0))[0] for _ in range(3)]
        assert survivors_after_wait(mark) == [] and not slow.done() and not stuck.done()
        outcome, folder = slow.result(timeout=60)
        assert stuck.result(timeout=60)[0].is_timed_out
    assert [one.exit_status for one in outcomes] == [0, 0, 0] and outcome.exit_status == 3
    assert (folder / "logs" / "stdout.txt").read_text() == "ended\n"
    assert server.starts == 1


def test_a_probe_that_fills_the_disk_reaches_a_limit(
    server: client.ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beyond the limit is an error inside the probe and does not decide about the bug."""
    monkeypatch.setattr(client, "MAX_FILE_BYTES", 1 << 20)
    text = COMPILE.format(
        "open('/proc/self/cwd/big' if False else __file__ + '.big', 'wb').write(b'0' * (4 << 20))"
    )
    judged = probe(server, text)
    assert judged.verdict.kind == "unknown" and judged.verdict.cause == "disk-full"
    assert judged.answer == "unresolved"


def test_each_probe_has_its_own_compiler_cache(server: client.ProbeServer) -> None:
    """A file that one probe writes, even partially before it is killed, is not visible to the next
    probe.
    """
    spoil = (
        "import os\nfolder = os.environ['TORCHINDUCTOR_CACHE_DIR']\nopen(os.path.join(folder,"
        " 'spoilt.so'), 'w')\nos.kill(os.getpid(), 9)\n"
    )
    server.run_program(spoil, ProbeLimits(60.0))
    look = (
        "import os\nassert 'spoilt.so' not in os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    )
    assert server.run_program(look, ProbeLimits(60.0))[0].exit_status == 0


def test_a_killed_server_is_restarted(tmp_path: Path) -> None:
    """The running probe is reported as lost, and the next one runs."""
    with client.ProbeServer(tmp_path, sys.executable, "aot") as server:
        assert probe(server, "import torch\n").verdict.kind == "ok"
        assert server._connection is not None
        child = server._connection.child
        threading.Timer(0.7, lambda: os.kill(child.pid, signal.SIGKILL)).start()
        with pytest.raises(client.ServerLost):
            probe(server, "import time\ntime.sleep(60)\n")
        assert probe(server, "import torch\n").verdict.kind == "ok"
        assert server.starts == 2
        pids = [server._connection.child.pid] if server._connection else []
    assert not [p for p in pids if psutil.pid_exists(p)]


def test_an_interpreter_without_torch_is_reported(tmp_path: Path) -> None:
    """The last lines of the server's output are in the message."""
    import venv

    venv.create(tmp_path / "bare", with_pip=False)
    with (
        pytest.raises(client.ServerLost, match="torch"),
        client.ProbeServer(tmp_path, str(tmp_path / "bare/bin/python"), "aot") as server,
    ):
        server.run_program("pass\n", ProbeLimits(10.0))


def test_the_cpp_compiler_only_checks_the_code(tmp_path: Path) -> None:
    """An error has the same signature as of a whole build, and code without one passes."""
    text = (
        "import subprocess\nimport torch\nimport torch._inductor.config\n"
        "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = {!r}\n"
        "run = subprocess.run\n"
        "def show(command, *args, **words):\n"
        "    print(*command, flush=True)\n"
        "    return run(command, *args, **words)\n"
        "subprocess.run = show\n"
        "torch.compile(lambda x: x.relu() + 1)(torch.randn(8))\n"
    )
    wanted: dict[str, Any] = {"stop": "cpp-build", "checks_syntax": True}
    with client.ProbeServer(tmp_path, sys.executable, "build") as server:
        checked = probe(server, text.format("compile_error"), **wanted)
        whole = probe(server, text.format("compile_error"), stop="cpp-build")
        outcome, folder = server.run_program(text.format(None), ProbeLimits(60.0, **wanted))
    commands = (folder / "logs" / "stdout.txt").read_text()
    assert outcome.exit_status == 0 and ".cpp" in commands and "-fsyntax-only" in commands
    assert checked.signature == whole.signature and "CppCompileError" in whole.signature.title


TRAINING = """
import torch
import torch._inductor.config

def picky(graph):
    if any(str(n.target) == "{}" for n in graph.nodes):
        raise RuntimeError("picky")

torch._inductor.config.post_grad_custom_post_pass = picky
x = torch.randn(8, requires_grad=True)
torch.compile(lambda x: torch.tanh(torch.sin(x)).sum())(x).backward()
print("gradient", x.grad is not None)
"""


def test_a_failure_in_a_backward_graph_builds_no_forward(tmp_path: Path) -> None:
    """The forward graph is compiled up to the phase, so a failure in it shows too, and then runs
    without compilation.
    """
    limits = ProbeLimits(60.0, stop="fx-passes", is_backward=True)
    with client.ProbeServer(tmp_path, sys.executable, "inductor") as server:
        for operator, words in (
            ("aten.cos.default", "picky"),
            ("aten.sin.default", "picky"),
            ("aten.erf.default", ""),
        ):
            outcome, folder = server.run_program(TRAINING.format(operator), limits)
            names = "".join(path.read_text() for path in (folder / "journal").glob("*.jsonl"))
            assert (outcome.exit_status == 1) == bool(words), operator
            assert words in (folder / "logs" / "stderr.txt").read_text()
            assert "compile_file" not in names and ("entire_backward" in names) == (
                operator != "aten.sin.default"
            )
        outcome, folder = server.run_program(
            TRAINING.format("none"), ProbeLimits(60.0, stop="fx-passes")
        )
        names = "".join(path.read_text() for path in (folder / "journal").glob("*.jsonl"))
        assert outcome.exit_status == 0 and "entire_backward" not in names
