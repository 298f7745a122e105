"""Each extension point takes one dummy in at most three files, and the dummy works end to end.

The dummies are added to a copy of the source, so a test fails when an extension needs more than
docs/architecture.md says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.extensions import EXTENSIONS, Extension, copy_with_dummies
from tests.support.reprokit_calls import CallResult, reprokit, shared_call

MAX_FILES = 3
REDUCED = pytest.mark.real("the first test of the failure minimizes it")
TARGETS = """
import sys
import time

import torch
import torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass


class Raises(CustomGraphPass):
    def __call__(self, graph):
        raise RuntimeError("DUMMYLIB has a bug")

    def uuid(self):
        return None


class Waits(CustomGraphPass):
    def __call__(self, graph):
        wait_for_dummy()

    def uuid(self):
        return None


def wait_for_dummy():
    time.sleep(3600)


def function(x):
    return x.sin() + 1


def make_raising():
    print("token dum_abcdefghijkl", file=sys.stderr)
    torch._inductor.config.post_grad_custom_post_pass = Raises()
    return function, (torch.ones(4),)


def make_waiting():
    torch._inductor.config.post_grad_custom_post_pass = Waits()
    return function, (torch.ones(4),)
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that calls the copy of reprokit with the dummies."""
    folder = tmp_path_factory.mktemp("extended")
    copy_with_dummies(folder)
    (folder / "targets.py").write_text(TARGETS)

    def call(*words: str | Path, **variables: str) -> CallResult:
        path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
        environ = clean_environ(PYTHONPATH=path, **variables)
        # a new process, because the server has imported reprokit without the dummies
        return reprokit(*words, cwd=folder, env=environ, stdin=subprocess.DEVNULL)

    return call


@pytest.fixture(scope="module")
def failure(extended: Any, tmp_path_factory: pytest.TempPathFactory) -> CallResult:
    """A minimized failure of the dummy library. All workers share it."""

    def capture(output: Path) -> CallResult:
        words = ("targets.py:make_raising", "--json", "--output-dir", output / "out")
        done: CallResult = extended("capture", *words, REPROKIT_MINIMIZE="1")
        return done

    done = shared_call(tmp_path_factory, "extended_failure", capture)
    assert done.status == 1, done.out + done.err
    return done


def text_of(pack: str | Path) -> str:
    """Return the text of all files of a pack."""
    with tarfile.open(pack) as packed:
        files = [packed.extractfile(member) for member in packed.getmembers() if member.isfile()]
        return "\n".join(file.read().decode("utf-8", "replace") for file in files if file)


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.adds)
def test_the_architecture_says_where_it_goes(extension: Extension) -> None:
    """The table of docs/architecture.md names the files that the dummy changes, at most three."""
    assert len(extension.edits) <= MAX_FILES
    rows = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    row = next((row for row in rows if row.startswith(f"| {extension.adds} |")), "")
    for file in extension.edits:
        is_new = not (ROOT / "reprokit" / file).exists()
        assert (f"{Path(file).parent}/" if is_new else f"`{file}`") in row, file


@pytest.mark.real
def test_a_kind_of_verdict(extended: Any, tmp_path: Path) -> None:
    """The new kind has its own exit code, title and pack."""
    program = "import sys, torch; print('DUMMY-KIND', file=sys.stderr)"
    words = ("--json", "--output-dir", tmp_path, "--", sys.executable, "-c", program)
    done = extended("capture", *words)
    assert (done.status, done.kind) == (7, "dummy-kind"), done.out + done.err
    assert done.json["signature"]["title"].startswith("dummy-kind: ")
    assert "dummy-kind" in Path(done.json["pack"]).name
    assert "it is a dummy" in extended("issue", done.json["pack"]).out


@pytest.mark.real
def test_a_cause_of_a_hang(extended: Any, tmp_path: Path) -> None:
    """The verdict of a hang has the new cause, and says what it means."""
    words = ("--stall", "4", "--no-escalate", "--output-dir", tmp_path)
    done = extended("capture", "targets.py:make_waiting", *words, "--json")
    verdict = done.json["verdict"]
    assert (verdict["kind"], verdict["cause"]) == ("hang", "dummy-wait"), done.out
    assert "The program waits for a dummy." in text_of(done.json["pack"])


@pytest.mark.long
def test_an_ablation_step(extended: Any, failure: CallResult) -> None:
    """``ablate`` compiles with the new switch too."""
    done = extended("ablate", failure.json["pack"], "--yes", "--json")
    steps = {step["name"]: step["answer"] for step in done.json["ablation"]["steps"]}
    assert steps["dummy switch"] == "same", done.out + done.err


@REDUCED
def test_a_reduction_pass(failure: CallResult) -> None:
    """The repro has the change that only the new pass makes."""
    repro = Path(failure.json["repro"]).read_text()
    assert "cos" in repro and "sin(" not in repro, repro


@REDUCED
def test_an_issue_form(extended: Any, failure: CallResult) -> None:
    """``issue`` opens the new form of the new repository, with the fields of its row."""
    assert failure.json["verdict"]["responsible"] == "dummylib"
    found = extended("issue", failure.json["pack"], "--json").json
    assert found["form"] == "dummy"
    assert found["url"].startswith(
        "https://github.com/dummy/dummylib/issues/new?template=dummy.yml"
    )
    assert [field["field"] for field in found["fields"]] == ["Everything"]


@REDUCED
def test_a_redaction_rule(failure: CallResult) -> None:
    """The run directory has the token, and the pack does not."""
    logs = failure.run_dir / "logs" / "stderr.txt"
    assert "dum_abcdefghijkl" in logs.read_text()
    text = text_of(failure.json["pack"])
    assert "dum_abcdefghijkl" not in text and "token " in text


@pytest.mark.real
def test_an_execution_engine(extended: Any, tmp_path: Path) -> None:
    """A nightly run runs its jobs on the new engine."""
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f"[suite]\nname = 's'\n[environments.here]\npython = '{sys.executable}'\n"
        "[matrix]\nenvironment = ['here']\n[[targets]]\ntarget = 'dummy-net'\n"
    )
    words = ("--engine", "dummy", "--output-dir", tmp_path / "nightly")
    done = extended("nightly", "run", suite, *words)
    assert "the dummy engine runs the jobs" in done.err, done.err
    assert done.status == 0, done.out + done.err


@pytest.mark.real
def test_a_gpu_vendor_and_an_environment_probe(extended: Any) -> None:
    """``env`` has the GPU of the new vendor and the answer of the new probe."""
    facts = extended("env", "--json").json["environment"]
    assert facts["gpus"]["gpus"][-1] == {"name": "Dummy 1"}
    assert facts["dummy"] == {"answer": 42}


@pytest.mark.real
def test_a_model_of_the_zoo_and_an_option(extended: Any, tmp_path: Path) -> None:
    """``models`` lists the new model, ``capture`` runs it, and the pack's command has the option."""
    models = {row["name"]: row for row in extended("models", "--json").json["models"]}
    assert models["dummy-net"]["parameters"] == 72
    words = ("--model", "dummy-net", "--dummy", "two words", "--output-dir", tmp_path)
    done = extended("capture", *words, "--json")
    assert done.kind == "ok", done.out + done.err
    with tarfile.open(done.json["pack"]) as packed:
        command = next(name for name in packed.getnames() if name.endswith("command.txt"))
        file = packed.extractfile(command)
        assert file is not None and "--dummy 'two words'" in file.read().decode()
