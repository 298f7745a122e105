"""When did it start? Real torch in environments that say they are others, with a bug that some of
them have.
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

import pytest
import torch

from ..conftest import (
    ROOT,
    Done,
    clean_environ,
    reprokit,
    reprokit_command,
    shared,
    stragglers,
    wait_until,
)
from ..wheels import wheel

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
    """What makes the torch of these tests another one, in site-packages."""
    pth = f"{Path(torch.__file__).parents[1]}\nimport pretends\n"
    return {"pretends.py": PRETENDS.format(version=version, bug=bug), "torch.pth": pth}


def pretend(folder: Path, version: str, bug: str) -> Path:
    """An environment with this torch that says it is ``version``, and has ``bug``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for name, text in pretending(version, bug).items():
        (site / name).write_text(text)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A pack of the failure, and an environment for each version beside it."""

    def make(place: Path) -> Done:
        for version, bug in HISTORY.items():
            pretend(place / version, version, bug)
        (place / "script.py").write_text(SCRIPT)
        words = ["--json", "--output-dir", place / "out", "--", place / "2.13.0" / "bin" / "python"]
        return reprokit("capture", *words, place / "script.py")

    done = shared(tmp_path_factory, "bisected", make)
    assert (
        done.status == 1 and done.kind == "exception" and BUG in done.json["signature"]["title"]
    ), done.err
    return done


def pythons(captured: Done, *versions: str) -> list[str]:
    """``--interpreter`` of each version."""
    place = Path(captured.json["pack"]).parents[1]
    return [
        word
        for version in versions
        for word in ("--interpreter", str(place / version / "bin" / "python"))
    ]


def answers(done: Done) -> list[tuple[str, str]]:
    return [(step["version"], step["answer"]) for step in done.json["steps"]]


@pytest.mark.slow
def test_it_started_here_and_is_not_asked_again(captured: Done, tmp_path: Path) -> None:
    """Ends first, then the middle; what an interrupt cut short goes on where it stood, with more
    versions between.
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
    assert stragglers(env["BISECT_MARK"]) == []
    with kept.open("a") as file:
        file.write('{"question": "torn')
    told = reprokit(*words, *pythons(captured, "2.11.0"), "--json")
    assert told.status == 0, told.err
    assert answers(told) == [("2.13.0", "bad"), ("2.9.1", "good"), ("2.11.0", "good")]
    assert told.json["range"] == {"good": "2.11.0", "bad": "2.13.0"} and told.json["skipped"] == []
    assert [step["is_known"] for step in told.json["steps"]] == [True, False, False]
    assert BUG in told.json["steps"][0]["title"]


@pytest.mark.slow
def test_it_was_fixed_here_and_others_are_stepped_around(captured: Done, tmp_path: Path) -> None:
    """The good end is the newer one; another failure, a broken build and no torch are skipped, and
    said to be.
    """
    fixed = pretend(tmp_path / "fixed", "2.14.0", "")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'libtorch_cpu.so: undefined symbol' >&2\nexit 1\n")
    broken.chmod(0o755)
    again = pretend(tmp_path / "again", "2.13.1", ANOTHER)
    words = ["--interpreter", str(broken), "--interpreter", str(again)]
    ends = ["--good", str(fixed), "--bad", pythons(captured, "2.13.0")[1]]
    done = reprokit("bisect", captured.json["pack"], *ends, *words, "--yes", "--json", cwd=tmp_path)
    assert done.status == 3, done.err  # between the ends there is only one that cannot be told
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


@pytest.mark.slow
def test_versions_are_built(captured: Done, tmp_path: Path) -> None:
    """A wheel is installed and asked; an end that passes is told, and one that cannot be installed,
    with pip's own words.
    """
    wheel(tmp_path, "torch", "2.11.0", pretending("2.11.0", ""))
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
    assert (
        done.status == 1 and "2.11.0 was told to be bad and does not show the failure" in done.out
    ), done.err
    assert "building an environment with pip" in done.err and "2.9.1 " not in done.out
    (python,) = (tmp_path / "cache" / "environments").glob("torch-2.11.0-*/bin/python")
    assert done.out.startswith("2.11.0           good ") and f"  {python}\n" in done.out
    again = reprokit(*words, "--good", "2.11.0", "--bad", "2.13.0", env=env)
    assert again.status == 3 and "No matching distribution found for torch==2.13.0" in again.out, (
        again.err
    )
    assert "2.13.0, the bad end, could not be tried" in again.out


@pytest.mark.slow
def test_git_bisect_run(captured: Done, tmp_path: Path) -> None:
    """git's own bisection over commits that change the interpreter: good, bad, a broken build and
    another failure.
    """
    place = Path(captured.json["pack"]).parents[1]
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
        tool.write_text(f'#!/bin/sh\nexec {place / commit / "bin" / "python"} "$@"\n')
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
    said = run.stdout + run.stderr
    assert (
        "There are only 'skip'ped commits left to test" in said
        and "skip: " in said
        and "bad: exception" in said
    ), said
    assert "good: it passes" in said, said
    wrong = reprokit(
        "bisect", captured.json["pack"], "--git", "--good", "2.9.1", "--versions", "2.10.0", "--yes"
    )
    assert wrong.status == 128 and "--good and --versions cannot be used with --git" in wrong.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name both ends"),
        (("--good", "2.9.1"), "name both ends"),
        (("--good", "two", "--bad", "2.13.0"), "'two' is no version"),
        (("--good", "2.9.1", "--bad", "2.9.1", "--versions", "2.9.1"), "are both 2.9.1"),
        (
            ("--good", "/no/such/python", "--bad", "2.9.1"),
            "--good /no/such/python: there is no such program",
        ),
        (
            ("--good", "2.9.1", "--bad", "2.10", "--interpreter", "/no/such"),
            "--interpreter /no/such",
        ),
        (
            ("--good", "2.9.1", "--bad", "2.10", "--installer", "uv", "--versions", "2.9.2"),
            "there is no uv",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    words: tuple[str, ...], says: str, captured: Done, tmp_path: Path
) -> None:
    """What was wrong and what to do; nothing is run."""
    env = clean_environ(PATH="/usr/bin:/bin")
    done = reprokit("bisect", captured.json["pack"], *words, "--yes", cwd=tmp_path, env=env)
    assert done.status == 2, done.err
    told = [line for line in done.err.splitlines() if says in line]
    assert len(told) == 1 and told[0].startswith("reprokit: "), done.err


def test_a_pack_is_a_strangers(captured: Done, tmp_path: Path, write: Any) -> None:
    """Without a terminal nothing of it is run before --yes."""
    done = reprokit(
        "bisect", captured.json["pack"], "--good", "2.9.1", "--bad", "2.13.0", cwd=tmp_path
    )
    assert done.status == 2 and "--yes" in done.err and list(tmp_path.iterdir()) == []
