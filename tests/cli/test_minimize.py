"""From a failure to the smallest program with the same failure: real captures, real repros, real
replays.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.system import compiler_cache
from tests.support.environments import ROOT, clean_environ
from tests.support.processes import restore_signals, survivors_after_wait, wait_until
from tests.support.reprokit_calls import CallResult, reprokit, reprokit_command, shared_call

BACKEND = """
import torch

def picky(gm, inputs):
    if any(n.target is torch.erf for n in gm.graph.nodes):
        raise NotImplementedError("erf is too hard")
    return gm.forward
"""
FUNCTION = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        y = torch.sigmoid(self.a(x))
        y = torch.erf(y) * 2
        for _ in range(4):
            y = torch.tanh(y) + 1
        return torch.softmax(self.b(y), -1).amax(-1)
"""
MAKE = (
    BACKEND
    + FUNCTION
    + """
def make():
    return {"model": Net(), "calls": [((torch.randn(8, 16),), {})], "compile": {"backend": picky}}
"""
)
SCRIPT = (
    BACKEND
    + FUNCTION
    + """
net = Net().eval()
with torch.no_grad():
    torch.compile(net, backend=picky)(torch.randn(8, 16))
"""
)
ANOTHER = """    if any(n.target is torch.sigmoid for n in gm.graph.nodes):
        raise KeyError("another bug")
    return gm.forward"""
TWO_BUGS = SCRIPT.replace("    return gm.forward", ANOTHER)
SMALL = (
    BACKEND
    + """
def f(x):
    return torch.erf(torch.sigmoid(x)) * 2

def make():
    return {"model": f, "calls": [((torch.randn(8),), {})], "compile": {"backend": picky}}
"""
)

TRAINING = """
import argparse
from dataclasses import dataclass

import torch
from torch import nn

@dataclass
class Config:
    hidden: int = 16

class Router(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden, 4)

    def forward(self, x):
        best = self.gate(x).argmax().item()
        name = "expert_%d" % best
        return x * len(name)

class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up, self.router = nn.Linear(8, config.hidden), Router(config)

    def forward(self, x):
        return self.router(torch.relu(self.up(x)))

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1)
    steps = parser.parse_args().steps
    model = torch.compile(Model(Config()), fullgraph=True)
    for step in range(steps):
        print(step, model(torch.randn(2, 8)).sum())

if __name__ == "__main__":
    main()
"""


def capture(*words: str | Path, cwd: Path | None = None, **more: str) -> CallResult:
    env = clean_environ(REPROKIT_MINIMIZE="1", **more)
    return reprokit("capture", "--json", *words, env=env, cwd=cwd)


def repro_of(done: CallResult) -> str:
    return Path(done.json["repro"]).read_text()


def operations(text: str) -> int:
    """Count the calls of torch inside the compiled function."""
    body = text.split("def repro")[1].split("\n\n\n")[0]
    return body.count("torch.") + body.count(" + ") + body.count(" * ")


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> CallResult:
    """Capture a quick failure once for all workers; its files are read-only."""

    def make(folder: Path) -> CallResult:
        (folder / "script.py").write_text(TWO_BUGS)
        words = (
            "--proofs",
            "3",
            "--output-dir",
            folder / "out",
            "--",
            sys.executable,
            folder / "script.py",
        )
        return capture(*words)

    done = shared_call(tmp_path_factory, "captured", make)
    assert done.status == 1 and done.json["pack"], done.err
    return done


@pytest.mark.real("it reduces a program and proves it")
def test_a_command_is_reduced_to_one_operation(captured: CallResult) -> None:
    """The recorded graph is cut, the custom backend is part of the program, and the repro is
    proved.

    Smaller programs fail with a different error, that of sigmoid. They are never accepted.
    """
    done = captured
    text, minimized = repro_of(done), done.json["minimized"]
    assert "erf is too hard" in done.json["signature"]["title"]
    assert operations(text) == 1 and "torch.erf(" in text and "def picky(" in text
    assert "sigmoid(" not in text.split("def repro")[1]
    assert (
        minimized["level"] == "dynamo"
        and minimized["began_nodes"] > 10
        and minimized["is_complete"]
    )
    assert minimized["proof"]["answer"] == "same" and minimized["proof"]["eager"] == "passes"
    assert minimized["proof"]["hits"] == minimized["proof"]["runs"] == 1
    assert "L_x_" not in text and "/script" not in text and "reprokit" not in text
    issue = Path(done.json["issue"]).read_text()
    assert text.strip() in issue and "1 of 1 fresh runs" in issue
    plain = subprocess.run(
        [sys.executable, done.json["repro"]],
        capture_output=True,
        text=True,
        env=clean_environ(),
        check=False,
    )
    assert plain.returncode == 1 and "erf is too hard" in plain.stderr
    eager = subprocess.run(
        [sys.executable, done.json["repro"]],
        env=clean_environ(TORCH_COMPILE_DISABLE="1"),
        check=False,
    )
    assert eager.returncode == 0


@pytest.mark.real("each probe that hangs takes its deadline")
@pytest.mark.parametrize(
    ("kind", "does"),
    [
        ("hang", "import threading; threading.Event().wait()"),
        pytest.param("crash", "import ctypes; ctypes.string_at(0)", marks=pytest.mark.long),
    ],
)
def test_hangs_and_crashes_are_reduced_too(
    kind: str, does: str, tmp_path: Path, write: Any
) -> None:
    """A probe that crashes or does not end has the signature of the capture, and no process is
    left.
    """
    mark = f"minimize-{kind}-{os.getpid()}"
    target = write("ends.py", SMALL.replace('raise NotImplementedError("erf is too hard")', does))
    done = capture(
        f"{target}:make",
        "--stall",
        "8",
        "--no-escalate",
        "--budget",
        "50",
        "--output-dir",
        tmp_path / "out",
        MARK=mark,
    )
    minimized = done.json["minimized"]
    assert done.kind == kind and minimized["proof"]["answer"] == "same", minimized
    assert (
        minimized["proof"]["hits"] == minimized["proof"]["runs"]
        and minimized["proof"]["eager"] == "passes"
    )
    assert minimized["lines"] < minimized["began_lines"]
    assert survivors_after_wait(mark) == []


@pytest.mark.long
def test_a_slow_compile_is_reduced(tmp_path: Path, write: Any) -> None:
    """The capture's deadline makes it a slow compile; a shorter deadline does so in the smaller
    programs.
    """
    working = "import time\n        while print('at work') is None: time.sleep(0.3)"
    target = write(
        "works.py", SMALL.replace('raise NotImplementedError("erf is too hard")', working)
    )
    done = capture(
        f"{target}:make",
        "--timeout",
        "15",
        "--stall",
        "10",
        "--budget",
        "65",
        "--output-dir",
        tmp_path / "out",
    )
    minimized = done.json["minimized"]
    assert done.kind == "slow-compile" and minimized["proof"]["answer"] == "same", minimized
    assert minimized["proof"]["hits"] == 1 and minimized["proof"]["eager"] == "passes"
    assert "torch.erf(" in repro_of(done) and minimized["lines"] < minimized["began_lines"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in that of torch's headers, the only one in which isolated programs leave files."""
    headers = compiler_cache.headers_folder()
    assert headers is not None
    headers.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=headers) as folder:
        yield Path(folder)


COUNTED = """import os
    with open(os.environ["COUNT"], "ab") as file:
        file.write(b"x")
    if os.path.getsize(os.environ["COUNT"]) % 3 and any("""
FLAKY = SMALL.replace("if any(", COUNTED)


@pytest.mark.long
def test_a_flaky_failure_is_reduced_with_repeats(tmp_path: Path, shared: Path, write: Any) -> None:
    """The failure occurs in two of three runs: one passing probe is not trusted. The repro compiles
    20 times, so that it fails in each run, and the note has the rate before.
    """
    twice = (
        "for _ in range(2):\n    torch._dynamo.reset()\n    torch.compile(f,"
        " backend=picky)(torch.randn(8, 16))\n"
    )
    done = capture(
        "--budget",
        "90",
        "--proofs",
        "3",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        write("flaky.py", FLAKY + twice),
        COUNT=str(shared / "count"),
    )
    minimized = done.json["minimized"]
    proof = minimized["proof"]
    assert minimized["rate"] < 1.0 and proof["hits"] == proof["runs"] == 10, minimized
    assert "for _ in range(20):\n    torch._dynamo.reset()\n" in repro_of(done)
    assert any("instead of" in note and "20 times" in note for note in minimized["notes"])
    assert "torch.erf(" in repro_of(done) and "os.environ" in repro_of(done)


LUCKY = """
import contextlib
import os
import torch

def picky(gm, inputs):
    draws = os.environ["DRAWS"]
    while not hasattr(torch, "draw"):
        number = len(os.listdir(draws))
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(draws, str(number)))
            torch.draw = number
    if torch.draw % 2 == 0 or torch.get_num_threads() > 4:
        raise RuntimeError("bad luck")
    return gm.forward

torch.compile(lambda x: torch.relu(x) + 1, backend=picky)(torch.ones(8))
"""


@pytest.mark.long
def test_more_threads_raise_the_rate_where_repeats_do_not(
    tmp_path: Path, shared: Path, write: Any
) -> None:
    """Each second process fails, however often it compiles, and all of them with five threads."""
    done = capture(
        *("--proofs", "3", "--output-dir", tmp_path / "out"),
        *("--", sys.executable, write("lucky.py", LUCKY)),
        DRAWS=str(shared),
        OMP_NUM_THREADS="2",
    )
    minimized = done.json["minimized"]
    threads = 2 * len(os.sched_getaffinity(0)) + 1
    assert f"torch.set_num_threads({threads})" in repro_of(done), minimized
    assert minimized["proof"]["hits"] == minimized["proof"]["runs"] == 10, minimized
    assert any(f"it uses {threads} OpenMP threads" in note for note in minimized["notes"])


@pytest.mark.real("it runs a script again in each probe")
def test_the_script_of_a_command_is_reduced_if_there_is_no_graph(
    tmp_path: Path, write: Any
) -> None:
    """Classes, the command line, ``main`` and the loop are removed; the code that Dynamo cannot
    trace stays.
    """
    done = capture(
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        write("train.py", TRAINING),
        "--steps",
        "3",
    )
    text, minimized = repro_of(done), done.json["minimized"]
    assert (
        minimized["level"] == "source"
        and minimized["proof"]["answer"] == "same"
        and minimized["proof"]["eager"] == "passes"
    )
    assert minimized["lines"] <= 6, text
    assert "expert_%d" in text and not re.search(r"import argparse|^class |^ *for ", text, re.M)


@pytest.mark.real
def test_a_script_that_writes_is_run_again_without_a_trace(tmp_path: Path, write: Any) -> None:
    """Changed copies of a user's training script run, and what they write is only in memory."""
    runs = tmp_path / "runs.txt"
    script = TRAINING + f'\nopen("{runs}", "a").write("x")\n'
    writes = f'open("{runs}", "a").write("x")\nopen("here.txt", "w").write("x")\nif __name__'
    script = script.replace("if __name__", writes)
    file = write("train.py", script)
    done = capture("--output-dir", tmp_path / "out", "--", sys.executable, file, cwd=tmp_path)
    assert done.json["verdict"]["kind"] == "exception" and runs.read_text() == "x"
    assert done.json["repro"], done.json["unproven"]
    assert "open" not in repro_of(done)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "train.py", "runs.txt", "here.txt"}


PROJECT = {
    "net/__init__.py": "from .model import Forecaster\n",
    "net/layers.py": (
        'class Router:\n    def pick(self, x):\n        return "expert_%d" % x.argmax().item()\n'
    ),
    "net/model.py": (
        "from dataclasses import dataclass\nimport torch\nfrom torch import nn\n"
        "from .layers import Router\n\n@dataclass\nclass Output:\n    loss: torch.Tensor\n\n"
        "class Forecaster(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
        "        self.router, self.head = Router(), nn.Linear(dim, 4)\n\n"
        "    def forward(self, x):\n        h = self.head(x)\n"
        "        return Output((h * len(self.router.pick(h))).sum())\n"
    ),
    "train.py": (
        "import argparse, json, os\nimport numpy as np\nimport torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\nfrom net import Forecaster\n\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--data')\n"
        "args = parser.parse_args()\nconfig = json.load(open('config.json'))\n"
        "rows = torch.from_numpy(np.load(args.data)).float()\n"
        "loader = DataLoader(TensorDataset(rows), batch_size=config['batch'])\n"
        "model = Forecaster(rows.shape[1])\n"
        "model.load_state_dict(torch.load('model.pt'))\n"
        "fast = torch.compile(model, fullgraph=True)\nos.makedirs('out', exist_ok=True)\n"
        "for epoch in range(2):\n    for (x,) in loader:\n        out = fast(x)\n"
        "        out.loss.backward()\n        torch.save(model.state_dict(), 'out/model.pt')\n"
    ),
    "make_data.py": (
        "import json, numpy as np, torch\nfrom net import Forecaster\n"
        "np.save('rows.npy', np.ones((32, 8)))\njson.dump({'batch': 4}, open('config.json', 'w'))\n"
        "torch.save(Forecaster(8).state_dict(), 'model.pt')\n"
    ),
}


@pytest.mark.real("the data of the program is made by torch")
def test_a_project_becomes_one_program_without_its_data(tmp_path: Path, write: Any) -> None:
    """A package that exports a name, data, a configuration and a checkpoint: the repro needs none
    of them, and nothing is written to the project.
    """
    (tmp_path / "my project").mkdir()
    for name, text in PROJECT.items():
        (tmp_path / "my project" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "my project" / name).write_text(text)
    home = tmp_path / "my project"
    subprocess.run([sys.executable, "make_data.py"], cwd=home, check=True)
    before = sorted(path for path in home.rglob("*") if "__pycache__" not in path.parts)
    words = ("--", sys.executable, "train.py", "--data", "rows.npy")
    done = capture("--output-dir", tmp_path / "out", *words, cwd=home)
    assert done.json["repro"], done.json["missing"]
    text, minimized = repro_of(done), done.json["minimized"]
    assert minimized["level"] == "source" and minimized["proof"]["eager"] == "passes"
    assert not re.search(r"numpy|load|argparse|json|open\(|import net", text), text
    assert minimized["lines"] <= 16, text
    after = sorted(path for path in home.rglob("*") if "__pycache__" not in path.parts)
    assert set(after) - set(before) == {home / "out"}


@pytest.mark.real("each check is a new process")
def test_a_pack_is_replayed_and_checked(captured: CallResult, tmp_path: Path, write: Any) -> None:
    """replay and check compare signatures, in both directions; a different failure is not the bug;
    125 means no answer.
    """
    pack = captured.json["pack"]
    refused = reprokit("replay", pack)
    assert refused.status == 2 and "--yes" in refused.err
    done = reprokit("replay", pack, "--yes", "-n", "2", "--json")
    assert done.status == 0 and done.json["places"][0]["hits"] == 2, done.out
    assert done.json["answer"] == "same"
    bug, good = (
        write("bug.py", SCRIPT),
        write("good.py", SCRIPT.replace("torch.erf(y)", "torch.sin(y)")),
    )
    other_script = write("other.py", SCRIPT.replace("erf is too hard", "no space"))
    never = write("never.py", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    expected = {
        (bug, "bug"): 0,
        (bug, "good"): 1,
        (good, "good"): 0,
        (other_script, "bug"): 1,
    }
    for (file, polarity), status in expected.items():
        done = reprokit("check", file, "--same-as", pack, "--exit-zero-if", polarity)
        assert done.status == status, (file, polarity, done.out, done.err)
    unfinished = write("exit.py", "import sys\nsys.exit(9)\n")
    assert reprokit("check", unfinished, "--same-as", pack, "--exit-zero-if", "bug").status == 125
    broken = write("broken.py", "import no_such_module\n" + SCRIPT)
    for file in (never, broken, tmp_path / "absent.py"):
        assert reprokit("check", file, "--same-as", pack, "--exit-zero-if", "good").status == 125, (
            file
        )
    unusable = ["--python", str(tmp_path / "no-python")]
    assert (
        reprokit("check", bug, "--same-as", pack, "--exit-zero-if", "good", *unusable).status == 125
    )


@pytest.fixture(scope="module")
def unreduced(tmp_path_factory: pytest.TempPathFactory) -> CallResult:
    """Capture without minimization, and read the pack on a machine without the script. Its backend
    is slow, and a test can fix the bug.
    """

    def make(folder: Path) -> CallResult:
        slow = (
            "    import os, time\n    time.sleep(float(os.environ.get('SLOW', 0)))\n    if 'MENDED'"
            " not in os.environ and any("
        )
        script = folder / "script.py"
        script.write_text(SCRIPT.replace("    if any(", slow))
        done = reprokit(
            "capture", "--json", "--output-dir", folder / "out", "--", sys.executable, script
        )
        script.unlink()
        return done

    done = shared_call(tmp_path_factory, "unreduced", make)
    assert done.json["minimized"] is None and done.json["pack"], done.err
    return done


@pytest.mark.real("it replays a pack with Inductor")
def test_a_pack_that_no_longer_fails_is_reported(unreduced: CallResult) -> None:
    """Where the failure is fixed, replay reports "not reproduced"; where nothing is compiled, it
    reports that it cannot tell.
    """
    pack = unreduced.json["pack"]
    done = reprokit("replay", pack, "--yes", "--json", env=clean_environ(MENDED="1"))
    assert done.status == 1 and done.json["answer"] == "passes"
    assert (
        reprokit("replay", pack, "--yes", env=clean_environ(TORCH_COMPILE_DISABLE="1")).status == 3
    )


@pytest.mark.real
def test_an_untrusted_pack_is_shown_before_it_runs(captured: CallResult) -> None:
    """On a terminal the program is shown, and runs only after a yes; without a terminal, --yes is
    needed.
    """
    pack = captured.json["pack"]
    refused = reprokit("minimize", pack)
    assert refused.status == 2 and "--yes" in refused.err and "Traceback" not in refused.err
    main, terminal = pty.openpty()
    child = subprocess.Popen(
        reprokit_command("replay", str(pack)),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environ(),
    )
    os.write(main, b"n\n")
    _, err = child.communicate(timeout=200)
    os.close(main)
    os.close(terminal)
    assert child.returncode == 2 and "def picky(" in err and "nothing was run" in err


@pytest.mark.real
def test_a_pack_is_minimized_on_a_different_machine(unreduced: CallResult, tmp_path: Path) -> None:
    """A capture without minimization, on a machine without the script: the graphs in the pack are
    enough.
    """
    small = reprokit(
        "minimize", unreduced.json["pack"], "--yes", "--json", "--output-dir", tmp_path / "again"
    )
    assert small.status == 0, small.err
    text = repro_of(small)
    assert operations(text) == 1
    shown = reprokit("show", small.json["pack"], "--file", "repro.py")
    assert shown.status == 0 and shown.out.strip() == text.strip()
    assert text.strip() in reprokit("show", small.json["pack"], "--file", "issue.md").out


@pytest.mark.real("it reduces twice")
def test_an_interrupted_reduction_keeps_the_best_and_is_resumed(
    unreduced: CallResult, tmp_path: Path
) -> None:
    """Ctrl-C leaves a candidate that failed in probes; --resume finishes the work with fewer
    probes.
    """
    run_dir = str(shutil.copytree(unreduced.run_dir, tmp_path / "run"))
    child = subprocess.Popen(
        reprokit_command("minimize", run_dir, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environ(SLOW="0.5"),
        preexec_fn=restore_signals,
    )
    answers = Path(run_dir) / "minimize" / "probes.jsonl"
    assert wait_until(lambda: answers.exists() and answers.read_text().count("\n") >= 4)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    result = json.loads(out)
    assert child.returncode == 130, err
    assert not result["minimized"]["is_complete"] and "resume" in " ".join(
        result["minimized"]["notes"]
    )
    assert result["repro"] is None and Path(result["candidate"]).exists() and result["pack"]
    before = answers.read_text().count("\n")
    again = reprokit("minimize", run_dir, "--resume", "--json")
    assert again.status == 0, again.err
    assert again.json["minimized"]["is_complete"] and operations(repro_of(again)) == 1
    assert again.json["minimized"]["asked"] > again.json["minimized"]["probes"]
    assert answers.read_text().count("\n") >= before


@pytest.mark.real
def test_a_reprokit_that_is_killed_leaves_nothing_running(
    unreduced: CallResult, tmp_path: Path
) -> None:
    """SIGKILL during a reduction ends the server and the probe, and the best candidate is on
    disk.
    """
    mark = f"killed-{os.getpid()}-{time.monotonic_ns()}"
    run_dir = shutil.copytree(unreduced.run_dir, tmp_path / "run")
    child = subprocess.Popen(
        reprokit_command("minimize", run_dir),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environ(MARK=mark, SLOW="1"),
    )
    folder = run_dir / "minimize"
    assert wait_until(lambda: (folder / "best.py").exists())
    child.kill()
    child.wait()
    assert survivors_after_wait(mark) == []
    assert "erf" in (folder / "best.py").read_text()


@pytest.mark.real
def test_the_whole_program_of_a_pack_is_shown(captured: CallResult, tmp_path: Path) -> None:
    """A pack whose metadata or older repro hides a program: the program is shown or refused, and
    never runs unseen.
    """
    import gzip
    import hashlib
    import io

    from reprokit.host.pack import reader, reopen
    from reprokit.host.run import run_directory

    pack = reader.read_pack(Path(captured.json["pack"]))
    files = {n: d for n, d in pack.files.items() if n != "manifest.json"}
    values = [n for n in files if n.endswith("values.json")]
    evil = "cpu') if __import__('os').system('touch pwned') else torch.randn(1, device='cpu"
    for name in values:
        files[name] = files[name].replace(b'"cpu"', json.dumps(evil).encode())
    files["original.py"] = (
        b"import os\nos.system('touch pwned')\nimport torch\ntorch.compile(print)\n"
    )
    rows = {n: {"size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()}
    files["manifest.json"] = json.dumps({"schema": 1, "files": rows}).encode()
    path = tmp_path / "evil.tar.gz"
    with gzip.open(path, "wb") as packed_file, tarfile.open(fileobj=packed_file, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    opened = reopen.open_pack(path)
    run = run_directory.create_run_directory(tmp_path / "work", "evil")
    shown = reopen.programs_to_run(reopen.case_of_pack(opened, run, sys.executable))
    run.release_lock()
    assert values and "touch pwned" in shown and "__import__" not in shown


@pytest.mark.real
def test_numpy_in_the_targets_environment_does_not_matter(tmp_path: Path) -> None:
    """Its linear algebra library starts threads on import, and a process with threads must not be
    forked.
    """
    from reprokit.host.probe import client
    from reprokit.host.probe.candidate import ProbeLimits

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, threading, time\nif os.environ.get('OPENBLAS_NUM_THREADS') != '1':\n   "
        " threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    )
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path / "site")
    try:
        with client.ProbeServer(tmp_path, sys.executable, "aot") as server:
            outcome, folder = server.run_program(
                "import os\nprint(os.environ.get('OPENBLAS_NUM_THREADS'))\n", ProbeLimits(60.0)
            )
            assert (
                outcome.exit_status == 0
                and (folder / "logs" / "stdout.txt").read_text().strip() == "None"
            )
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["minimize", "no-such-thing"], "no model"),
        (["minimize", "no/such/pack.tar.gz"], "no pack or run directory"),
        (["minimize", "."], "run directory"),
        (["minimize", "README.md"], "readable .tar.gz"),
        (["replay", "README.md"], "readable .tar.gz"),
        (["minimize", "x.py:make", "--budget", "-1"], "above 0"),
        (["minimize", "x.py:make", "--resume"], "--resume"),
        (
            ["check", "README.md", "--same-as", "README.md", "--exit-zero-if", "bug"],
            "readable .tar.gz",
        ),
        (["check", "README.md", "--same-as", "README.md"], "--exit-zero-if"),
    ],
)
def test_bad_input_gets_one_line(words: list[str], says: str) -> None:
    """The line says what is wrong and what to do; the exit code is 2."""
    done = reprokit(*words, cwd=ROOT)
    assert done.status == 2 and says in done.err and len(done.err.strip().splitlines()) == 1, (
        done.err
    )


def test_a_failure_that_cannot_be_minimized_is_reported(tmp_path: Path, write: Any) -> None:
    """A failure in eager is not a compiler bug, and the pack says why there is no smaller repro."""
    script = write("eager.py", "import torch\ntorch.compile\nraise ValueError('mine')\n")
    done = capture("--output-dir", tmp_path / "out", "--", sys.executable, script)
    assert done.json["minimized"] is None
    assert any(
        m["what"] == "minimization" and "without torch.compile" in m["why"]
        for m in done.json["missing"]
    ), done.json


@pytest.mark.long
def test_the_budget_excludes_the_proof(tmp_path: Path, write: Any) -> None:
    """The budget includes the start of the server and the search for a first program. In the worst
    case, the result is that program without a reduction.
    """
    done = capture(
        f"{write('short.py', SMALL)}:make", "--budget", "0.5", "--output-dir", tmp_path / "out"
    )
    minimized = done.json["minimized"]
    assert (
        not minimized["is_complete"]
        and minimized["lines"] in (0, minimized["began_lines"])
        and minimized["probes"] <= 2
    ), minimized
    assert any(note.startswith("the budget ended") for note in minimized["notes"]), minimized
    assert re.fullmatch(r"budget 0.5 s: reduction \d+ s, proof \d+ s", minimized["spent"]), (
        minimized
    )
