"""What a failure needs of the machine and the process, found by a capture and by the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.experiments.places import NAMESPACES
from tests.support.environments import clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

FAILS_IF = """
import os
import torch

def picky(gm, inputs):
    if CONDITION:
        raise RuntimeError("fails under a condition")
    return gm.forward

def f(x):
    return torch.relu(x) + 1

torch.compile(f, backend=picky)(torch.ones(8))
"""
THREADS = "torch.get_num_threads() > 1"
INSTRUCTIONS = "torch.backends.cpu.get_cpu_capability() != 'DEFAULT'"
TWO_THREADS = {"OMP_NUM_THREADS": "2"}


STUDIED = {"REPROKIT_MINIMIZE": "1", "REPROKIT_PROOFS": "3", **TWO_THREADS}


def _check(done: CallResult) -> CallResult:
    assert (done.status, done.kind) == (1, "exception"), done.out + done.err
    assert done.json["repro"], done.out + done.err
    return done


def _captured(write: Any, tmp_path: Path, condition: str) -> CallResult:
    script = write("train.py", FAILS_IF.replace("CONDITION", condition))
    words = ("--output-dir", tmp_path / "out", "--", sys.executable, script)
    return _check(reprokit("capture", "--json", *words, env=clean_environ(**STUDIED)))


def _recorded(write: Any, recorded: Recorder, condition: str) -> CallResult:
    script = write("train.py", FAILS_IF.replace("CONDITION", condition))
    return _check(recorded("--", sys.executable, script, **STUDIED))


@pytest.mark.real("it reduces a program and tries its conditions")
def test_a_repro_sets_the_threads_that_it_needs(write: Any, tmp_path: Path) -> None:
    """One forked child with everything changed passes, and delta debugging finds the threads."""
    done = _captured(write, tmp_path, THREADS)
    found = done.json["minimized"]["conditions"]
    assert found["needed"] == [["OpenMP threads", "2 threads"]]
    assert "hash seed" in found["irrelevant"] and "default dtype" in found["irrelevant"]
    proof = done.json["minimized"]["proof"]
    assert (proof["hits"], proof["runs"], proof["changed"]) == (2, 2, "same"), proof
    assert "torch.set_num_threads(2)\n" in Path(done.json["repro"]).read_text()
    assert "Needs: OpenMP threads: 2 threads." in Path(done.json["issue"]).read_text()


@pytest.mark.long
def test_a_machine_that_cannot_show_the_failure_says_so(write: Any, tmp_path: Path) -> None:
    """The repro checks the instructions; replay and check then cannot tell, and name them."""
    import torch

    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this machine has no vector instructions")
    done = _captured(write, tmp_path, INSTRUCTIONS)
    minimized = done.json["minimized"]
    assert [name for name, _ in minimized["conditions"]["needed"]] == [
        "vector instructions of ATen and Inductor"
    ]
    assert minimized["proof"]["hits"] == 2 and "SystemExit(77)" in (
        Path(done.json["repro"]).read_text()
    )
    pack = Path(done.json["pack"])
    usual, other = clean_environ(**TWO_THREADS), clean_environ(ATEN_CPU_CAPABILITY="default")
    there = reprokit("replay", "--json", "--yes", pack, env=usual)
    assert (there.status, there.json["answer"], there.json["places"][0]["unmet"]) == (0, "same", "")
    elsewhere = reprokit("replay", "--json", "--yes", pack, env=other)
    assert (elsewhere.status, elsewhere.json["places"][0]["unmet"]) == (3, "vector instructions")
    text = reprokit("replay", "--yes", pack, env=other).out
    assert "cannot tell: this machine cannot show the failure: it needs vector instr" in text
    words = ("--same-as", pack, "--exit-zero-if", "bug")
    checked = reprokit("check", "--json", done.json["repro"], *words, env=other)
    assert (checked.status, checked.json["unmet"]) == (125, "vector instructions")
    nowhere = reprokit("conditions", "--json", "--yes", pack, env=other)
    assert (nowhere.status, nowhere.json["occurs"]) == (3, False)
    asked = reprokit("conditions", "--yes", pack, env=usual)
    assert asked.status == 0 and "Needs: vector instructions of ATen and Inductor" in asked.out, (
        asked.out
    )


@pytest.mark.real
def test_a_repro_runs_in_other_places_of_this_machine(write: Any, recorded: Recorder) -> None:
    """The failure needs two threads, so it does not occur with one CPU."""
    done = _recorded(write, recorded, "len(os.sched_getaffinity(0)) > 1")
    words = ("--in", "here", "--in", "cores=1", "--in", "memory=64G", "--in", sys.executable)
    again = reprokit("replay", "--json", "--yes", done.json["pack"], *words)
    places = {row["place"]: row for row in again.json["places"]}
    answers = {name: row["answer"] for name, row in places.items()}
    assert answers == {
        "here": "same",
        "cores=1": "unresolved",
        "memory=64G": "same",
        sys.executable: "same",
    }, again.out
    assert places["cores=1"]["unmet"] == "two CPUs"
    assert again.status == 3


@pytest.mark.real
def test_a_repro_runs_in_namespaces(write: Any, recorded: Recorder) -> None:
    """In a namespace without a network, and below a root folder without the files of the user."""
    if subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine forbids user namespaces")
    done = _recorded(write, recorded, "True")
    words = ("--in", "isolated", "--in", "root=/+cpu=none")
    again = reprokit("replay", "--json", "--yes", done.json["pack"], *words)
    assert again.status == 0, again.out + again.err
    assert [row["answer"] for row in again.json["places"]] == ["same", "same"], again.out


@pytest.mark.long
@pytest.mark.triton
def test_a_failure_of_the_compiler_is_tried_on_a_simulated_gpu(
    write: Any, recorded: Recorder, tmp_path: Path
) -> None:
    """The command also tries each value alone, and a cache that a run before has filled."""
    device = "inputs[0].device.type != 'cuda' or 'conditions-cache' in os.environ.get(CACHE, '')"
    condition = device.replace("CACHE", "'TORCHINDUCTOR_CACHE_DIR'")
    done = _recorded(write, recorded, condition)
    words = ("--in", "gpu=h100", "--in", "here", "--output-dir", tmp_path / "again")
    found = reprokit("conditions", "--json", "--yes", done.json["pack"], *words)
    assert found.status == 0, found.out + found.err
    assert [row["answer"] for row in found.json["places"]] == ["passes", "same"]
    tried = {tuple(row["changed"]): row["answer"] for row in found.json["conditions"]["tried"]}
    assert tried["compiler cache: filled by a run before",] == "same"
    assert tried["free memory: 4 GiB",] == "same" and not found.json["conditions"]["needed"]
    assert not [*Path(found.json["run_dir"]).rglob("*-cache")]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("cores=0", "'cores=0' is not a place; the places are: here, isolated,"),
        ("moon", "'moon' is not a place"),
        ("root=/no/such", "/no/such is not a folder"),
        ("gpu=moon", "no such GPU is known"),
    ],
)
def test_bad_places_get_one_line(word: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "ok.py"
    script.write_text("print(1)\n")
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    refused = reprokit("replay", "--yes", "--in", word, done.json["pack"])
    assert refused.status == 2 and why in refused.err, refused.err


def test_conditions_needs_a_pack_with_a_program(tmp_path: Path) -> None:
    done = reprokit("conditions", tmp_path / "absent.tar.gz")
    assert done.status == 2 and "absent.tar.gz" in done.err and "Traceback" not in done.err
