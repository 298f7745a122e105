"""A command behind ``--`` runs without changes and is instrumented through the environment only."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.pack import reader
from tests.support.environments import clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import reprokit, reprokit_command

COMPILES = """
import sys, torch
f = torch.compile(lambda x: x.sin() + 1, backend={backend})
print("value", float(f(torch.zeros(2)).sum()), sys.argv[1:])
"""


def journal(run: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for p in (run / "journal").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]


@pytest.mark.real
def test_arguments_output_and_graphs(write: Any, tmp_path: Path) -> None:
    """Unusual arguments arrive unchanged, both streams are live, and graphs are recorded before
    they are compiled.
    """
    script = write(
        "train.py", COMPILES.format(backend="'aot_eager'") + "print('to stderr', file=sys.stderr)\n"
    )
    words = ["--flag", "a b", "--", "$HOME", "-h"]
    done = reprokit(
        "capture",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        script,
        *words,
        cwd=tmp_path,
    )
    assert done.status == 0, done.err
    assert f"value 2.0 {words}" in done.out
    assert "to stderr" in done.err
    run = tmp_path / "out" / "run-001"
    events = journal(run)
    names = [e["ev"] for e in events]
    assert (
        names.index("process")
        < names.index("graph")
        < names.index("graph_done")
        < names.index("exit")
    )
    (graph,) = [e for e in events if e["ev"] == "graph"]
    assert graph["level"] == "dynamo" and graph["cid"] == "0/0"
    assert (
        "class Repro(torch.nn.Module):"
        in (run / "graphs" / f"{graph['n']:04d}" / "graph.py").read_text()
    )
    facts = json.loads((run / "graphs" / f"{graph['n']:04d}" / "inputs.json").read_text())
    assert facts["inputs"][0]["shape"] == [2]
    assert (run / "logs" / "stdout.txt").read_text() == done.out[
        : len((run / "logs" / "stdout.txt").read_text())
    ]
    assert json.loads((run / "run.json").read_text())["argv"][2:] == words


@pytest.mark.parametrize(
    ("code", "status", "kind", "exit_code"),
    [("sys.exit(0)", 0, "ok", 0), ("sys.exit(7)", 7, "unknown", 3)],
)
def test_its_own_exit_status_is_kept(
    code: str, status: int, kind: str, exit_code: int, tmp_path: Path
) -> None:
    """A program that exits by itself is not a failure of the compiler; its status is in the
    report.
    """
    done = reprokit(
        "capture",
        "--json",
        "--output-dir",
        tmp_path,
        "--",
        sys.executable,
        "-c",
        f"import sys; {code}",
    )
    assert (done.status, done.kind) == (exit_code, kind)
    assert json.loads((done.run_dir / "run.json").read_text())["exit_status"] == status


def test_json_keeps_stdout_for_the_object(tmp_path: Path) -> None:
    """The stdout of the program goes to stderr, so that a program can parse the stdout of
    reprokit.
    """
    done = reprokit(
        "capture",
        "--json",
        "--output-dir",
        tmp_path,
        "--",
        sys.executable,
        "-c",
        "print('chatter')",
    )
    assert done.json["verdict"]["kind"] == "ok"
    assert "chatter" in done.err


def test_output_is_live(tmp_path: Path) -> None:
    """A line is shown when it is printed, not when the program ends."""
    code = "import time; print('first'); time.sleep(30)"
    command = reprokit_command(
        "capture", "--output-dir", str(tmp_path), "--", sys.executable, "-c", code
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environ()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        assert process.poll() is None
        process.terminate()
        assert process.wait(200) == 130


def test_the_hidden_sitecustomize_runs_first(write: Any, tmp_path: Path) -> None:
    """The user's own sitecustomize has its effect and is the module of that name."""
    write("sitecustomize.py", "import os; os.environ['SEEN'] = 'yes'; MINE = 1\n")
    env = clean_environ(PYTHONPATH=str(tmp_path))
    code = (
        "import os, sitecustomize; print(os.environ['SEEN'], sitecustomize.MINE,"
        " sitecustomize.__file__)"
    )
    done = reprokit(
        "capture", "--output-dir", tmp_path / "out", "--", sys.executable, "-c", code, env=env
    )
    assert f"yes 1 {tmp_path}/sitecustomize.py" in done.out


def test_a_program_without_torch_is_not_changed(tmp_path: Path) -> None:
    """Such a program has no journal, imports nothing of reprokit except the import hook, and is not
    changed.
    """
    code = (
        "import sys; print(sorted(m for m in sys.modules if 'torch' in m), 'faulthandler' in"
        " sys.modules, sys.excepthook is sys.__excepthook__)"
    )
    done = reprokit("capture", "--json", "--output-dir", tmp_path, "--", sys.executable, "-c", code)
    assert "[] False True" in done.err
    assert not list((done.run_dir / "journal").iterdir())
    assert any(m["what"] == "journal" for m in done.json["missing"])


@pytest.mark.real
def test_children_are_watched_too(write: Any, tmp_path: Path) -> None:
    """The children of a launcher write their own journals, with their ranks."""
    worker = write("worker.py", COMPILES.format(backend="'eager'"))
    launcher = write(
        "launch.py",
        "import os, subprocess, sys\nfor r in '01': subprocess.run([sys.executable,"
        f" {str(worker)!r}], env={{**os.environ, 'RANK': r, 'WORLD_SIZE': '2'}}, check=True)\n",
    )
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, launcher
    )
    ranks = {e["rank"] for e in journal(done.run_dir) if e["ev"] == "process"}
    assert ranks == {"0", "1"}
    assert len({e["pid"] for e in journal(done.run_dir) if e["ev"] == "graph"}) == 2


FAILS_TO_COMPILE = """
import torch
def backend(gm, inputs):
    raise ValueError("no lowering for 17 nodes")
try:
    torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))
except Exception:
    {after}
"""


@pytest.mark.parametrize("after", ["raise", "print('went on')"])
def test_a_failed_compile_is_found_even_if_the_program_catches_it(
    after: str, write: Any, recorded: Recorder
) -> None:
    """Frameworks fall back to eager silently; the verdict and the signature are the same."""
    script = write("train.py", FAILS_TO_COMPILE.format(after=after))
    done = recorded("--", sys.executable, script)
    assert (done.status, done.kind) == (1, "exception"), done.out
    assert (
        done.json["signature"]["title"]
        == "exception: backend | ValueError: no lowering for # nodes @ <user>:train.backend"
    )


def test_an_exception_outside_the_compiler_is_not_a_compiler_bug(
    write: Any, recorded: Recorder
) -> None:
    """A FileNotFoundError in train.py is reported as such."""
    script = write("train.py", COMPILES.format(backend="'eager'") + "open('/no/such/file')\n")
    done = recorded("--", sys.executable, script)
    assert (done.status, done.kind) == (1, "error-in-eager")
    assert "fails without torch.compile too" in done.json["verdict"]["reason"]


def test_a_crash_before_torch_is_not_a_compiler_bug(write: Any, recorded: Recorder) -> None:
    """A segmentation fault without a compile is not a compiler bug."""
    script = write("train.py", "import torch, ctypes\nctypes.string_at(0)\n")
    done = recorded("--", sys.executable, script)
    assert (done.status, done.kind) == (1, "error-in-eager"), done.out


@pytest.mark.real
def test_a_program_that_looks_for_torch_first(write: Any, tmp_path: Path) -> None:
    """``find_spec("torch")`` before the import, as in many libraries, does not prevent the
    instrumentation.
    """
    script = write(
        "t.py",
        "import importlib.util\nassert importlib.util.find_spec('torch').origin\n"
        + COMPILES.format(backend="'eager'")
        + "raise ValueError('late')\n",
    )
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    assert {"process", "torch", "graph", "exception"} <= {e["ev"] for e in journal(done.run_dir)}


@pytest.mark.real
def test_a_program_that_clears_its_environment(write: Any, tmp_path: Path) -> None:
    """The journal continues, and the compile is not affected."""
    script = write(
        "t.py", "import os, torch\nos.environ.clear()\n" + COMPILES.format(backend="'eager'")
    )
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    assert (done.status, done.kind) == (0, "ok"), done.out
    assert "graph" in {e["ev"] for e in journal(done.run_dir)}


def test_a_compile_failure_that_the_program_wraps(write: Any, recorded: Recorder) -> None:
    """The signature is that of the exception that left the compiler."""
    script = write("train.py", FAILS_TO_COMPILE.format(after="raise RuntimeError('step 3 failed')"))
    done = recorded("--", sys.executable, script)
    assert (
        done.json["signature"]["title"]
        == "exception: backend | ValueError: no lowering for # nodes @ <user>:train.backend"
    )


def test_a_failure_before_torch_is_reported(write: Any, tmp_path: Path) -> None:
    """A typo above ``import torch`` gets a clear verdict, not an unknown end."""
    script = write("train.py", "import no_such_dependency\nimport torch\n")
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    assert (done.status, done.kind) == (1, "error-in-eager"), done.out
    assert "ModuleNotFoundError" in done.json["verdict"]["reason"]


def test_reprokit_under_reprokit(tmp_path: Path) -> None:
    """The two sitecustomize modules do not run each other endlessly."""
    inner = [sys.executable, "-m", "reprokit", "models", "--json"]
    done = reprokit(
        "capture",
        "--json",
        "--output-dir",
        tmp_path,
        "--",
        *reprokit_command("capture", "--output-dir", str(tmp_path / "in"), "--", *inner),
    )
    assert done.status == 0 and "RecursionError" not in done.err, done.err


def test_an_interpreter_that_ignores_the_agent_is_reported(tmp_path: Path) -> None:
    """python -I ignores PYTHONPATH and therefore the instrumentation; this is reported."""
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path, "--", sys.executable, "-I", "-c", "pass"
    )
    assert any("-I" in m["why"] for m in done.json["missing"] if m["what"] == "journal")


@pytest.mark.real
def test_logs_go_to_files_and_unknown_names_are_reported(write: Any, tmp_path: Path) -> None:
    """The logs that reprokit requests with TORCH_LOGS are not printed by the target, and a name
    that torch does not have is reported.
    """
    script = write(
        "train.py",
        "import torch\nf = torch.compile(lambda x: x + 1, backend='eager')\nf(torch.zeros(2));"
        " f(torch.zeros(3)); f(torch.zeros(2, 2))\n",
    )
    done = reprokit(
        "capture",
        "--json",
        "--logs",
        "guards,no_such_log",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        script,
    )
    logs = "".join(p.read_text() for p in (done.run_dir / "logs").glob("torch-*.log"))
    assert "__recompiles" in logs and "__guards" in logs
    assert "recompiles" not in done.err and "guards" not in done.err
    assert any("no_such_log" in m["why"] for m in done.json["missing"])
    recompiles = [e for e in journal(done.run_dir) if e["ev"] == "recompile"]
    assert (
        len(recompiles) == 2
        and recompiles[0]["function"] == "<lambda>"
        and recompiles[0]["reasons"]
    )


@pytest.mark.real
def test_the_targets_own_torch_logs_still_reach_its_stderr(write: Any, tmp_path: Path) -> None:
    """Logs that the user has enabled still go to the user's destination."""
    script = write("train.py", COMPILES.format(backend="'eager'"))
    env = clean_environ(TORCH_LOGS="graph_code")
    done = reprokit(
        "capture", "--output-dir", tmp_path / "out", "--", sys.executable, script, env=env
    )
    assert "__graph_code" in done.err
    assert "__recompiles" not in done.err and "INFO" not in done.err


def test_no_secret_enters_a_pack(write: Any, recorded: Recorder) -> None:
    """No secret of the environment, the arguments, the output, the source or the traceback is in
    the pack.
    """
    token, home = "hf_" + "Q7" * 17, "/home/janedoe"
    script = write(
        "train.py",
        f"import torch, warnings\nTOKEN = {token!r}\nwarnings.warn('mail"
        f" jane@corp.example.com')\nprint(TOKEN, '{home}/data', '10.20.30.40')\ndef backend(gm, i):"
        f" raise ValueError('cannot read {home}/x with ' + TOKEN)\ntorch.compile(lambda x: x + 1,"
        " backend=backend)(torch.zeros(2))\n",
    )
    secrets = {
        "HF_TOKEN": token,
        "MY_DB_PASSWORD": "correcthorse",
        "AWS_SECRET_ACCESS_KEY": "x" * 40,
    }
    done = recorded("--", sys.executable, script, "--api-key", "Zx81abcd9", **secrets)
    pack = reader.read_pack(Path(done.json["pack"]))
    for name, data in pack.files.items():
        if name.startswith("trace/"):
            import gzip

            data = gzip.decompress(data)
        for secret in (
            token,
            "janedoe",
            "10.20.30.40",
            "jane@corp",
            "correcthorse",
            "x" * 40,
            "Zx81abcd9",
        ):
            assert secret.encode() not in data, (name, secret)
    assert b"<token-1>" in pack.files["logs/stdout.txt"]
    # the files beside the run directory are the files of the pack
    assert "janedoe" not in Path(done.json["issue"]).read_text()


@pytest.mark.real
def test_compile_workers_are_instrumented(write: Any, tmp_path: Path) -> None:
    """Inductor's own worker processes are instrumented and leave no process."""
    script = write("train.py", COMPILES.format(backend="'inductor'"))
    words = ("--output-dir", tmp_path / "out", "--", sys.executable, script)
    with tempfile.TemporaryDirectory() as folder:  # torch itself needs a path without spaces
        cache = Path(folder) / "cache"
        env = clean_environ(TORCHINDUCTOR_COMPILE_THREADS="2", TORCHINDUCTOR_CACHE_DIR=str(cache))
        done = reprokit("capture", "--json", *words, env=env)
        assert cache.is_dir(), "the user's cache directory is the user's"
    assert (done.status, done.kind) == (0, "ok"), done.out
    assert not (done.run_dir / "agent-problems.txt").exists()
    assert {e["level"] for e in journal(done.run_dir) if e["ev"] == "graph"} == {"dynamo", "aten"}


TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--standalone",
)


def test_two_ranks_under_torchrun(write: Any, recorded: Recorder) -> None:
    """torchrun starts two gloo ranks; each compiles, writes a journal and is compared with itself
    in eager.
    """
    script = write(
        "ranks.py",
        """
import torch, torch.distributed as dist
dist.init_process_group('gloo')
def lies(gm, inputs):
    return lambda *args: [out + dist.get_rank() for out in gm.forward(*args)]
f = torch.compile(lambda x: x * (dist.get_rank() + 1), backend=lies)
print(f(torch.ones(2)))
dist.destroy_process_group()
""",
    )
    done = recorded("--compare", "--", *TORCHRUN, script)
    assert (done.status, done.kind) == (1, "wrong-result"), done.out + done.err
    assert "than eager on rank 1: output: values" in done.json["verdict"]["reason"]
    assert "eager gives 2.0, compiled code 3.0" in done.json["verdict"]["reason"]
    assert {e["rank"] for e in journal(done.run_dir) if e["ev"] == "process" and e["rank"]} == {
        "0",
        "1",
    }


@pytest.mark.real("it starts a launcher and two ranks with torch")
def test_a_rank_that_fails_to_compile_under_torchrun(write: Any, tmp_path: Path) -> None:
    """The launcher's ChildFailedError is only a consequence; the failure of the rank is the
    verdict.
    """
    script = write("rank.py", FAILS_TO_COMPILE.format(after="raise"))
    words = ("--json", "--output-dir", tmp_path / "out", "--", *TORCHRUN, script)
    done = reprokit("capture", *words)
    assert (
        done.json["signature"]["title"]
        == "exception: backend | ValueError: no lowering for # nodes @ <user>:rank.backend"
    ), done.out


def test_a_rank_that_hangs_under_torchrun(write: Any, recorded: Recorder) -> None:
    """The launcher only waits; the verdict is about the rank inside the compiler."""
    script = write(
        "rank.py",
        "import torch\ndef backend(gm, i):\n    import time; time.sleep(1000)\ntorch.compile(lambda"
        " x: x + 1, backend=backend)(torch.zeros(2))\n",
    )
    # stopped by its stall: on a busy machine, a deadline could come before the hang
    done = recorded("--stall", "10", "--timeout", "200", "--", *TORCHRUN, script)
    assert done.json["signature"]["title"].startswith("hang: backend | <user>:rank.backend"), (
        done.out
    )


def test_a_reader_that_closes_the_pipe_is_not_an_error(tmp_path: Path) -> None:
    """``reprokit show PACK | head -1`` ends without an error."""
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path, "--", sys.executable, "-c", "pass"
    )
    command = f"{shlex.join(reprokit_command('show', done.json['pack']))} | head -1"
    piped = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=clean_environ(), check=False
    )
    assert piped.returncode == 0 and "Traceback" not in piped.stderr
