"""A failure that the program has only under reprokit is nobody else's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.reprokit_calls import CallResult, reprokit

SENSITIVE = """
import os, torch

def backend(gm, inputs):
    if "REPROKIT_RUN_DIR" in os.environ:
        raise RuntimeError("unexpected variable REPROKIT_RUN_DIR")
    return gm.forward

def make():
    return {"model": lambda x: x + 1, "calls": [((torch.zeros(2),), {})], "compile": {"backend": backend}}
"""
RUNS_IT = """
with open("ran.txt", "a") as file:
    file.write("once")
torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))
"""


def capture(folder: Path, *words: str | Path) -> CallResult:
    options = ("--json", "--no-minimize", "--no-ablate", "--output-dir", folder / "out")
    return reprokit("capture", *options, *words, cwd=folder)


@pytest.mark.real("it runs the program several times")
def test_a_program_that_passes_without_reprokit_is_not_blamed(tmp_path: Path) -> None:
    """Its backend, which raises, is not responsible either."""
    (tmp_path / "sensitive.py").write_text(SENSITIVE)
    done = capture(tmp_path, "sensitive.py:make")
    verdict = done.json["verdict"]
    assert (done.kind, verdict["responsible"]) == ("exception", "reprokit"), done.out
    assert verdict["responsible_because"] == [
        "Without reprokit the program passes. Its evidence names REPROKIT_RUN_DIR."
    ]
    assert done.json["decision"]["action"] == "nothing"
    assert done.json["issue"] is None


@pytest.mark.real
def test_a_command_runs_without_reprokit_and_without_a_trace(tmp_path: Path) -> None:
    """It appends to a file; the runs without reprokit are isolated."""
    (tmp_path / "sensitive.py").write_text(SENSITIVE + RUNS_IT)
    done = capture(tmp_path, "--", sys.executable, "sensitive.py")
    assert (done.kind, done.json["verdict"]["responsible"]) == ("exception", "reprokit"), done.out
    assert (tmp_path / "ran.txt").read_text() == "once"


@pytest.mark.real
def test_a_command_that_cannot_run_again_says_so(tmp_path: Path) -> None:
    """Its script has changed meanwhile, so it ran once, and nobody is responsible."""
    changes = "os.utime(__file__, (4e9, 4e9))\n"
    (tmp_path / "sensitive.py").write_text(SENSITIVE + changes + RUNS_IT)
    done = capture(tmp_path, "--", sys.executable, "sensitive.py")
    verdict = done.json["verdict"]
    assert (done.kind, verdict["responsible"]) == ("exception", "unknown"), done.out
    named, why = verdict["responsible_because"]
    assert named == "Its evidence names REPROKIT_RUN_DIR."
    assert why.startswith("No run without reprokit shows the failure: a command is run only once")
    assert (tmp_path / "ran.txt").read_text() == "once"
    assert why in Path(done.json["issue"]).read_text()


@pytest.mark.real
def test_a_failure_that_occurs_without_reprokit_too_is_the_programs_own(tmp_path: Path) -> None:
    """Its message names reprokit. The run without reprokit has the arguments of the command."""
    needs = '"--bad" in sys.argv'
    text = SENSITIVE.replace('"REPROKIT_RUN_DIR" in os.environ', needs).replace("os, ", "os, sys, ")
    call = "\ntorch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))\n"
    (tmp_path / "sensitive.py").write_text(text + call)
    done = capture(tmp_path, "--", sys.executable, "sensitive.py", "--bad")
    verdict = done.json["verdict"]
    assert (done.kind, verdict["responsible"]) == ("exception", "user"), done.out
    assert verdict["responsible_because"][0].startswith("torch called backend in your own code")
