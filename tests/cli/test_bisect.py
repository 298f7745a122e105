"""In which version did a failure start? Real torch, in environments that report other versions,
some of them with a bug.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import ROOT, TORCH_FOLDER, clean_environ
from tests.support.processes import survivors_after_wait, wait_until
from tests.support.reprokit_calls import CallResult, reprokit, reprokit_command, shared_call
from tests.support.wheels import write_wheel

SCRIPT = """
import torch

def f(x):
    return torch.erf(torch.sigmoid(x)) * 2

torch.compile(f, backend="eager")(torch.randn(8))
"""
PRETENDS = """
import importlib.abc, importlib.machinery, sys

VERSION, BUG = {version!r}, {bug!r}

def patch(module):
    if module.__name__ == "torch.version":
        module.__version__ = VERSION
        return
    real = module.OutputGraph.call_user_compiler
    def call(self, gm, inputs, *more):
        if BUG and "erf" in str(gm.code):
            raise NotImplementedError(BUG)
        return real(self, gm, inputs, *more)
    module.OutputGraph.call_user_compiler = call

class Loader(importlib.abc.Loader):
    def __init__(self, inner):
        self.inner = inner
    def create_module(self, spec):
        return self.inner.create_module(spec)
    def exec_module(self, module):
        self.inner.exec_module(module)
        patch(module)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in ("torch.version", "torch._dynamo.output_graph"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(spec.loader)
        return spec

sys.meta_path.insert(0, Finder())
"""
BUG, ANOTHER = "erf is too hard", "no space left"
HISTORY = {"2.9.1": "", "2.11.0": "", "2.12.1": BUG, "2.13.0": BUG}
"""The bug starts in 2.12.1."""


def pretending(version: str, bug: str) -> dict[str, str]:
    """The files in site-packages that make the torch of these tests report a different version."""
    pth = f"{TORCH_FOLDER.parent}\nimport pretends\n"
    return {"pretends.py": PRETENDS.format(version=version, bug=bug), "torch.pth": pth}


def pretend(folder: Path, version: str, bug: str) -> Path:
    """Create an environment whose torch reports ``version`` and has ``bug``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for name, text in pretending(version, bug).items():
        (site / name).write_text(text)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> CallResult:
    """Return a pack of the failure, and an environment for each version next to it."""

    def make(folder: Path) -> CallResult:
        for version, bug in HISTORY.items():
            pretend(folder / version, version, bug)
        (folder / "script.py").write_text(SCRIPT)
        words = [
            "--json",
            "--output-dir",
            folder / "out",
            "--",
            folder / "2.13.0" / "bin" / "python",
        ]
        return reprokit("capture", *words, folder / "script.py")

    done = shared_call(tmp_path_factory, "bisected", make)
    assert (
        done.status == 1 and done.kind == "exception" and BUG in done.json["signature"]["title"]
    ), done.err
    return done


def pythons(captured: CallResult, *versions: str) -> list[str]:
    """Return ``--interpreter`` for each version."""
    folder = Path(captured.json["pack"]).parents[1]
    return [
        word
        for version in versions
        for word in ("--interpreter", str(folder / version / "bin" / "python"))
    ]


def answers(done: CallResult) -> list[tuple[str, str]]:
    return [(step["version"], step["answer"]) for step in done.json["steps"]]


@pytest.mark.real("it runs a program with several versions, twice")
def test_the_first_bad_version_is_found_and_a_bisection_is_resumed(
    captured: CallResult, tmp_path: Path
) -> None:
    """The ends come first, then the middle. An interrupted bisection continues at the same point,
    with more versions between.
    """
    ends = ["--good", "2.9.1", "--bad", "2.13.0", *pythons(captured, "2.13.0", "2.9.1")]
    words = ["bisect", captured.json["pack"], *ends, "--yes", "--output-dir", str(tmp_path / "out")]
    env = clean_environ(BISECT_MARK=uuid.uuid4().hex)
    child = subprocess.Popen(
        reprokit_command(*words, "--json"),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    kept = tmp_path / "out" / "answers.jsonl"
    assert wait_until(lambda: kept.exists() and kept.read_text().count("\n") == 1)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=200)
    assert child.returncode == 130, err
    assert json.loads(out)["is_interrupted"] and "interrupted" in json.loads(out)["says"]
    assert survivors_after_wait(env["BISECT_MARK"]) == []
    with kept.open("a") as file:
        file.write('{"question": "torn')
    resumed = reprokit(*words, *pythons(captured, "2.11.0"), "--json")
    assert resumed.status == 0, resumed.err
    assert answers(resumed) == [("2.13.0", "bad"), ("2.9.1", "good"), ("2.11.0", "good")]
    assert (
        resumed.json["range"] == {"good": "2.11.0", "bad": "2.13.0"}
        and resumed.json["skipped"] == []
    )
    assert [step["is_known"] for step in resumed.json["steps"]] == [True, False, False]
    assert BUG in resumed.json["steps"][0]["title"]
    describe = Path(resumed.json["describe"])
    assert describe == tmp_path / "out" / "describe.md"
    (paragraph,) = [row for row in describe.read_text().splitlines() if "started between" in row]
    assert paragraph.startswith("`torch.compile` raises") and paragraph.endswith(
        resumed.json["says"]
    )


@pytest.mark.long
def test_the_fix_is_found_and_unusable_versions_are_skipped(
    captured: CallResult, tmp_path: Path
) -> None:
    """The good end may be the newer one. A different failure, a broken build and a missing torch
    are skipped and reported.
    """
    fixed = pretend(tmp_path / "fixed", "2.14.0", "")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'libtorch_cpu.so: undefined symbol' >&2\nexit 1\n")
    broken.chmod(0o755)
    again = pretend(tmp_path / "again", "2.13.1", ANOTHER)
    words = ["--interpreter", str(broken), "--interpreter", str(again)]
    ends = ["--good", str(fixed), "--bad", pythons(captured, "2.13.0")[1]]
    done = reprokit("bisect", captured.json["pack"], *ends, *words, "--yes", "--json", cwd=tmp_path)
    # only one version is between the ends, and it cannot be tested
    assert done.status == 3, done.err
    assert answers(done) == [
        ("", "skip"),
        ("2.13.0", "bad"),
        ("2.14.0", "good"),
        ("2.13.1", "skip"),
    ]
    assert done.json["is_fix"] and done.json["range"] is None and done.json["skipped"] == ["2.13.1"]
    assert ANOTHER in done.json["steps"][3]["title"] and "undefined symbol" not in done.json["says"]
    assert done.json["says"].startswith(
        "It was fixed between 2.13.0, the last that fails, and 2.14.0"
    )


@pytest.mark.real
def test_versions_are_built(captured: CallResult, tmp_path: Path) -> None:
    """A wheel is installed and tested. An end that passes is reported, and so is one that cannot be
    installed, with pip's message.
    """
    write_wheel(tmp_path, "torch", "2.11.0", pretending("2.11.0", ""))
    env = clean_environ(PIP_CONFIG_FILE=os.devnull, PYTHONPATH=f"{ROOT}:{tmp_path / 'torch'}")
    env.pop("PIP_FIND_LINKS", None)
    words = [
        "--find-links",
        tmp_path,
        "--no-index",
        "--installer",
        "pip",
        "--cache",
        tmp_path / "cache",
        "--yes",
    ]
    words = ["bisect", captured.json["pack"], *words, "--output-dir", tmp_path / "out"]
    done = reprokit(*words, "--good", "2.9.1", "--bad", "2.11.0", env=env)
    assert done.status == 1 and "2.11.0 is the bad end and does not have the failure" in done.out, (
        done.err
    )
    assert "building an environment with pip" in done.err and "2.9.1 " not in done.out
    (python,) = (tmp_path / "cache" / "environments").glob("torch-2.11.0-*/bin/python")
    assert done.out.startswith("2.11.0           good ") and f"  {python}\n" in done.out
    again = reprokit(*words, "--good", "2.11.0", "--bad", "2.13.0", env=env)
    assert again.status == 3 and "No matching distribution found for torch==2.13.0" in again.out, (
        again.err
    )
    assert "2.13.0, the bad end, could not be tried" in again.out


@pytest.mark.real
def test_git_bisect_run(captured: CallResult, tmp_path: Path) -> None:
    """git bisect over commits that change the interpreter: good, bad, a broken build and a
    different failure.
    """
    folder = Path(captured.json["pack"]).parents[1]
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words: str) -> str:
        names = {
            f"GIT_{who}_{what}": "test@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        env = {**clean_environ(), **names, "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["git", *words], cwd=repository, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    git("init", "-q", "-b", "main")
    tool = repository / "python"
    for commit in ("2.9.1", "2.11.0", "broken", "2.12.1", "2.13.0"):
        tool.unlink(missing_ok=True)
        python = shlex.quote(str(folder / commit / "bin" / "python"))
        tool.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        tool.chmod(0o755)
        git("add", "-A")
        git("commit", "-q", "-m", commit)
    git("bisect", "start", "HEAD", "HEAD~4")
    run = subprocess.run(
        [
            "git",
            "bisect",
            "run",
            *reprokit_command(
                "bisect", captured.json["pack"], "--git", "--python", "./python", "--yes"
            ),
        ],
        cwd=repository,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    output = run.stdout + run.stderr
    assert (
        "There are only 'skip'ped commits left to test" in output
        and "skip: " in output
        and "bad: exception" in output
    ), output
    assert "good: it passes" in output, output
    wrong = reprokit(
        "bisect", captured.json["pack"], "--git", "--good", "2.9.1", "--versions", "2.10.0", "--yes"
    )
    assert wrong.status == 128 and "--good and --versions cannot be used with --git" in wrong.err


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name both ends"),
        (("--good", "2.9.1"), "name both ends"),
        (("--good", "two", "--bad", "2.13.0"), "'two' is not a version"),
        (("--good", "2.9.1", "--bad", "2.9.1", "--versions", "2.9.1"), "are both 2.9.1"),
        (
            ("--good", "/no/such/python", "--bad", "2.9.1"),
            "--good /no/such/python: there is no such program",
        ),
        (
            ("--good", "2.9.1", "--bad", "2.10", "--interpreter", "/no/such"),
            "--interpreter /no/such",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    words: tuple[str, ...], says: str, captured: CallResult, tmp_path: Path
) -> None:
    """The line says what is wrong and what to do; nothing runs."""
    env = clean_environ(PATH="/usr/bin:/bin")
    done = reprokit("bisect", captured.json["pack"], *words, "--yes", cwd=tmp_path, env=env)
    assert done.status == 2, done.err
    lines = [line for line in done.err.splitlines() if says in line]
    assert len(lines) == 1 and lines[0].startswith("reprokit: "), done.err


@pytest.mark.real
def test_an_untrusted_pack_runs_only_with_consent(
    captured: CallResult, tmp_path: Path, write: Any
) -> None:
    """Without a terminal, no program of the pack runs unless --yes is given."""
    done = reprokit(
        "bisect", captured.json["pack"], "--good", "2.9.1", "--bad", "2.13.0", cwd=tmp_path
    )
    assert done.status == 2 and "--yes" in done.err and list(tmp_path.iterdir()) == []
