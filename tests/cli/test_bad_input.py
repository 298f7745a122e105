"""Bad input gets one clear line that says what is wrong and what to do, exit code 2, and no
traceback.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import clean_environ
from tests.support.examples import examples
from tests.support.processes import survivors
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import reprokit

TARGETS = """
import os, sys
import torch
def raises(): raise ValueError("no weights\\nhere")
def number(): return 42
def exits(): sys.exit(3)
def no_gradient(): return (lambda x: x.detach()), (torch.zeros(2),)
"""

# command line -> words of the error line
LINES = {
    ("--model", "llama41b"): "did you mean llama40b",
    ("no_such.py:make",): "there is no file no_such.py",
    ("target.py:make",): "there is no file target.py; did you mean targets.py",
    ("targets.py",): "names a file but no factory",
    ("targets.py:not a name",): "is not a Python name",
    ("no_such_module.x:make",): "there is no module 'no_such_module'",
    ("targets.py:raises",): "failed: ValueError: no weights here (line 4 of targets.py)",
    ("--stall", "0", "llama-tiny"): "above 0",
    ("--stall", "nan", "llama-tiny"): "above 0",
    ("--line-repeats", "0", "llama-tiny"): "whole number of at least 1",
    ("targets.py:exits",): "called sys.exit(3)",
    ("targets.py:no_gradient", "--train"): "nothing to run backward",
    ("--model", "llama-tiny", "--backend", "nonsense"): "Invalid backend",
    ("--model", "llama-tiny", "--mode", "nonsense"): "torch.compile refused",
    ("--model", "llama-tiny", "--device", "cuda:7"): "this torch sees no such device",
    ("--model", "llama-tiny", "--device", "toaster"): "torch has no such device",
    ("--model", "llama-tiny", "--device", "meta"): "use --weights fake",
    ("--model", "convnet", "--sequence-length", "4"): "convnet has no sequence length",
    ("--model", "llama-decode", "--train"): "cannot be used with --train",
    ("--model", "llama-tiny", "--python", "/no/such/python"): "there is no such program",
    ("--model", "llama-tiny", "--python", "/bin/ls"): "does not behave like a Python interpreter",
    ("--model", "llama-tiny", "--output-dir", "/proc/no"): "cannot write below /proc/no",
    ("--model", "llama-tiny", "--output-dir", "targets.py/x"): "cannot write below",
    ("--model", "llama-tiny", "--timeout", "0"): "seconds above 0",
    ("--model", "llama-tiny", "--timeout", "nan"): "seconds above 0",
    ("--model", "llama-tiny", "--layers", "0"): "--layers",
    ("--model", "llama-tiny", "--dtype", "int8"): "--dtype",
    (): "no target was given",
    ("--model", "llama-tiny", "targets.py:good"): "more than one target",
    ("python", "train.py"): "reprokit capture -- python train.py",
    ("--",): "there is no command after --",
    ("--", "no-such-program"): "there is no program 'no-such-program'",
    ("--layers", "2", "--", "python", "x.py"): "--layers changes a model",
    ("--no-such-option",): "No such option",
}
STARTS_TORCH = {
    ("no_such_module.x:make",): pytest.mark.real,
    ("targets.py:raises",): pytest.mark.real,
    ("targets.py:exits",): pytest.mark.long,
    ("targets.py:no_gradient", "--train"): pytest.mark.real,
    ("--model", "llama-tiny", "--backend", "nonsense"): pytest.mark.real,
    ("--model", "llama-tiny", "--mode", "nonsense"): pytest.mark.long,
    ("--model", "llama-tiny", "--device", "cuda:7"): pytest.mark.real,
    ("--model", "llama-tiny", "--device", "toaster"): pytest.mark.long,
    ("--model", "llama-tiny", "--device", "meta"): pytest.mark.long,
}
"""Only the interpreter of the target can tell that these are wrong."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bad")
    (place / "targets.py").write_text(TARGETS)
    return place


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=STARTS_TORCH.get(words, ()), id=" ".join(words)) for words in LINES],
)
def test_one_clear_line(words: tuple[str, ...], folder: Path) -> None:
    """The line says what is wrong and what to do; no process is left."""
    env = clean_environ(BAD_MARK=uuid.uuid4().hex)
    done = reprokit("capture", *words, cwd=folder, env=env)
    assert done.status == 2, done.out + done.err
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("reprokit: ") and LINES[words] in last, done.err
    lines = [
        line
        for line in done.err.strip().splitlines()
        if not re.match(r"reprokit: (running|\d+ s) ", line)
    ]
    assert len(lines) == 1, done.err  # after a progress line, which appears on slow machines
    assert done.out == ""
    assert survivors(env["BAD_MARK"]) == []


@pytest.mark.real
def test_json_refuses_in_json(folder: Path) -> None:
    """With --json, stdout has the same object with nulls, and stderr has the line."""
    done = reprokit("capture", "targets.py:number", "--json", cwd=folder)
    assert done.status == 2
    assert done.json["verdict"]["kind"] is None
    assert "returned an int" in done.json["missing"][0]["why"]
    assert "returned an int" in done.json["error"]["message"]
    assert "returned an int" in done.err


@pytest.mark.real
def test_the_output_of_the_factory_is_kept(folder: Path, tmp_path: Path) -> None:
    """The run directory has the whole traceback, and the line names it."""
    done = reprokit("capture", "targets.py:raises", "--output-dir", tmp_path / "out", cwd=folder)
    log = tmp_path / "out" / "run-001" / "logs" / "stderr.txt"
    assert str(log) in done.err
    assert "Traceback" in log.read_text()


def test_a_file_that_is_not_a_program(tmp_path: Path) -> None:
    """The file is executable, but has no first line that names an interpreter."""
    script = tmp_path / "no_shebang"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    done = reprokit("capture", "--output-dir", tmp_path / "o", "--", script)
    assert done.status == 2
    assert done.err.strip().splitlines()[-1].startswith("reprokit: cannot start")


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    """--python names an environment without torch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = reprokit(
        "capture",
        "--model",
        "llama-tiny",
        "--python",
        tmp_path / "bare" / "bin" / "python",
        "--output-dir",
        tmp_path / "o",
    )
    assert done.status == 2
    assert "cannot import torch" in done.err and "--python" in done.err


def test_an_unwritable_folder(tmp_path: Path) -> None:
    """A folder without write permission. Root can write there all the same, and is refused in a
    different way.
    """
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere; /proc/no is tested above")
    done = reprokit("capture", "--model", "llama-tiny", "--output-dir", folder / "x")
    assert done.status == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [("hard_exit", "unknown"), ("hard_exit_in_call", "unknown"), ("eager_fails", "error-in-eager")],
)
def test_targets_that_fail_by_themselves(
    name: str, kind: str, write: Any, recorded: Recorder
) -> None:
    """The failure is neither a usage error nor a compiler bug: a verdict, and a pack of what
    exists.
    """
    path = write(
        "t.py",
        "import os, torch\ndef hard_exit(): os._exit(0)\n"
        "def hard_exit_in_call(): return (lambda x: os._exit(5)), (torch.zeros(2),)\n"
        "def eager_fails(): return (lambda x: x @ torch.ones(5, 5)), (torch.zeros(3, 3),)\n",
    )
    done = recorded(f"{path}:{name}")
    assert (done.status, done.kind) == ({"unknown": 3, "error-in-eager": 1}[kind], kind)
    assert Path(done.json["pack"]).is_file()


def test_a_failed_compile_without_gradients_is_not_a_failure_of_eager(
    write: Any, recorded: Recorder
) -> None:
    """The same with --train: the run without torch.compile succeeds, although it cannot run a
    backward pass.
    """
    path = write(
        "t.py",
        "import torch\ndef backend(graph, inputs): raise KeyError('buf0')\ndef make(): return"
        " {'model': torch.sin, 'calls': [((torch.zeros(2),), {})], 'compile': {'backend':"
        " backend}}\n",
    )
    done = recorded(f"{path}:make", "--train")
    assert done.kind == "exception" and "KeyError" in done.json["verdict"]["reason"], done.err


def test_a_journal_cut_at_any_byte_still_gives_a_verdict(write: Any, recorded: Recorder) -> None:
    """Cut the journal of a real failure at any byte: the reader, the rules and the signature never
    raise an error.
    """
    from reprokit.core.judge.signature import sign_verdict
    from reprokit.core.judge.verdict import judge_run
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import Target
    from reprokit.host.run import observation_reader
    from reprokit.host.run.restore_run import restore_run

    path = write(
        "t.py",
        "import torch\ndef backend(gm, i): raise ValueError('x')\ntorch.compile(lambda x: x + 1,"
        " backend=backend)(torch.zeros(2))\n",
    )
    done = recorded("--", sys.executable, path)
    journal = next((done.run_dir / "journal").glob("*.jsonl"))
    whole = journal.read_bytes()
    pid = int(journal.stem)
    outcome = restore_run(done.run_dir)[1]
    assert (outcome.exit_status, outcome.main_pid) == (1, pid)
    request = Request(Target("command", command=("python",)))
    stderr = done.run_dir / "logs" / "stderr.txt"
    # the traceback on stderr replaces the journal
    for expected in (
        {"exception"},
        {"exception", "unknown"},
    ):
        kinds = set()
        for cut in range(0, len(whole) + 1, max(1, len(whole) // examples(400))):
            journal.write_bytes(whole[:cut])
            seen = observation_reader.read_observation(
                request, outcome, done.run_dir, observation_reader.read_journals(done.run_dir)
            )
            verdict = judge_run(seen)
            assert sign_verdict(verdict, seen).id
            kinds.add(verdict.kind)
        assert kinds == expected
        stderr.write_text("")
    assert json.loads((done.run_dir / "verdict.json").read_text())["kind"] == "exception"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ablate", "nothing"), "there is no model 'nothing'"),
        (("ablate", "a/b.tar.gz"), "there is no pack a/b.tar.gz"),
        (("ablate", "."), "is a folder"),
        (("workarounds", "x.py"), "names a file but no factory"),
        (("workarounds", "x.py:make", "--timeout", "-1"), "above 0"),
        (("workarounds", "targets.py"), "names a file but no factory"),
        (("capture", "llama-tiny", "--fail-on", "graph-break:-1"), "graph-break:3"),
        (("capture", "llama-tiny", "--fail-on", "slow"), "recompile, graph-break, cudagraph-skip"),
        (("capture", "--compare-speed", "--", "python", "x.py"), "name a factory"),
        (("capture", "llama-tiny", "--compare-speed", "--weights", "fake"), "nothing is executed"),
    ],
)
def test_commands_refuse_bad_packs_and_targets_with_a_one_line_error(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    """The line says what is wrong and what to do; nothing runs."""
    done = reprokit(*words, cwd=tmp_path)
    assert done.status == 2 and says in done.err and done.err.count("\n") == 1, done.err
