"""An issue calls a program a repro only if it ran alone and failed in the same way. For all other
programs it has the reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.report import markdown
from tests.support import warm_processes
from tests.support.environments import clean_environ
from tests.support.recordings import Recorder, pack_recording
from tests.support.reprokit_calls import CallResult, reprokit

PICKY = """
import torch

def picky(gm, inputs):
    if any(n.target is torch.erf for n in gm.graph.nodes):
        raise NotImplementedError("erf is too hard")
    return gm.forward
"""
CALLED = "torch.compile(lambda x: torch.erf(x) * 2, backend=picky)(torch.randn(8))\n"
ONLY_ONCE = "import os; os.utime(__file__, (4e9, 4e9))\n"
"""A script with this line is not run again, because it may change files."""


STUDIED = {"REPROKIT_MINIMIZE": "1"}


def assert_candidate(done: CallResult, why: str) -> str:
    """Check that the pack has a candidate, and that the issue says why it is not a repro without
    showing it. Return its text.
    """
    result = done.json
    assert result["repro"] is None and result["candidate"], result
    assert why in result["unproven"], result["unproven"]
    text, issue = Path(result["candidate"]).read_text(), Path(result["issue"]).read_text()
    assert (
        f"There is no proven repro: {result['unproven']}. `candidate.py` in the pack is " in issue
    ), issue
    assert "Repro (" not in issue and text.strip() not in issue
    return text


def test_without_a_reduction_nothing_is_called_a_repro(write: Any, recorded: Recorder) -> None:
    """The recorded program is in the pack as a candidate, which replay accepts; the terminal and
    the issue say why.
    """
    script = write("script.py", PICKY + CALLED)
    done = recorded("--no-minimize", "--", sys.executable, script)
    text = assert_candidate(done, "--no-minimize: no fresh process has run it")
    assert "erf" in text
    packed_again = pack_recording(done.run_dir, "-v")
    assert "--no-minimize: no fresh process has run it" in " ".join(packed_again.out.split()), (
        packed_again.out
    )
    assert "candidate" in packed_again.out and "\nrepro " not in packed_again.out


@pytest.mark.real
def test_the_targets_own_files_are_in_its_repro(
    write: Any, tmp_path: Path, recorded: Recorder
) -> None:
    """A module next to the target becomes part of the program; one that is imported by a computed
    name is reported as missing.
    """
    write("helper.py", PICKY + "WIDTH = 8\n")
    model = "\ndef f(x):\n    return x * len('expert_%d' % x.argmax().item())\n"
    example = (
        "{'model': f, 'calls': [((torch.randn(helper.WIDTH),), {})], 'compile': {'fullgraph':"
        " True}}"
    )
    joined = write(
        "joined.py", f"import torch\nimport helper\n{model}\ndef make():\n    return {example}\n"
    )
    import_line = "helper = importlib.import_module('repleh'[::-1])"
    apart = write(
        "apart.py",
        f"import importlib\nimport torch\n{model}\ndef make():\n    {import_line}\n    return {example}\n",
    )
    done = recorded(f"{joined}:make", "--budget", "10", out="a", **STUDIED)
    parted = recorded(f"{apart}:make", "--budget", "10", out="b", **STUDIED)
    assert done.json["repro"] and done.json["unproven"] is None, done.out
    alone = tmp_path / "alone"
    alone.mkdir()
    file = alone / "repro.py"
    file.write_bytes(Path(done.json["repro"]).read_bytes())
    ran = warm_processes.run_torch_program(file, cwd=alone)
    assert ran.returncode == 1 and "item" in ran.stderr, ran.stderr
    text = assert_candidate(
        parted, "it is not self-contained: it imports helper, which is not in the pack"
    )
    assert import_line in text


def test_a_program_that_ran_alone_is_a_repro_without_a_smaller_one(
    write: Any, tmp_path: Path, recorded: Recorder
) -> None:
    """No probe can be forked, because each interpreter has a thread here. The target's own source
    is run unchanged.
    """
    (tmp_path / "site").mkdir()
    thread = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(999,),"
        " daemon=True).start()\n"
    )
    (tmp_path / "site" / "sitecustomize.py").write_text(thread)
    call = (
        "{'model': lambda x: torch.erf(x), 'calls': [((torch.ones(3),), {})], 'compile':"
        " {'backend': picky}}"
    )
    file = write("target.py", f"{PICKY}\ndef make():\n    return {call}\n")
    variables = {**STUDIED, "PYTHONPATH": str(tmp_path / "site")}
    done = recorded(f"{file}:make", "--budget", "5", **variables)
    assert done.json["minimized"]["lines"] == 0 and done.json["repro"], done.out
    text, issue = Path(done.json["repro"]).read_text(), Path(done.json["issue"]).read_text()
    sentence = (
        "Repro (the target's own source, with the call that failed; the same failure in 1 of 1"
        " fresh runs, eager passes):"
    )
    assert sentence in issue and text.strip() in issue and "def make():" in text
    claims = json.loads(
        Path(done.json["issue"]).with_name("issue").joinpath("claims.json").read_text()
    )
    about = {row["text"]: row["about"] for row in claims}
    assert about["Without `torch.compile` the program passes."] == "the program of the pack"
    assert about["message: erf is too hard"] == "the captured run"
    folded = "<details><summary>How it was found</summary>"
    stated = [line for line in issue.partition(folded)[2].splitlines() if line.startswith("- ")]
    escaped = {str(markdown.escape_line(row["text"])) for row in claims}
    assert stated and all(line.removeprefix("- ") in escaped for line in stated), stated


def test_a_hang_in_a_backend_that_no_graph_contains_is_not_a_repro(
    write: Any, recorded: Recorder
) -> None:
    """Python finds no source text of the backend. The graph alone is compiled with a different one
    and passes, so it does not show the hang.
    """
    write("other.py", "SECONDS = 600\n")
    write(
        "backends.py",
        "import time\nimport other\nexec('def waits(gm, inputs): time.sleep(other.SECONDS)')\n",
    )
    script = (
        "import torch\nimport backends\ntorch.compile(lambda x: x.sin() + 1,"
        " backend=backends.waits)(torch.ones(3))\n"
    )
    words = ("--stall", "8", "--budget", "5", "--no-escalate", "--", sys.executable)
    done = recorded(*words, write("script.py", ONLY_ONCE + script), **STUDIED)
    assert done.kind == "hang", done.out
    assert done.json["verdict"]["responsible"] == "unknown"  # the code has no file
    text = assert_candidate(done, "run alone in a fresh process it passes")
    assert "sin" in text and "backend" not in text.split("torch.compile", 1)[1]


CUSTOM = """
import torch
import factors

@torch.library.custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * factors.{factor}

@scale.register_fake
def _(x):
    return torch.empty_like(x)

def picky(gm, inputs):
    if any("mine.scale" in str(n.target) for n in gm.graph.nodes):
        raise NotImplementedError("scale is too hard")
    return gm.forward

torch.compile(lambda x: scale(x.sin()) + 1, backend=picky)(torch.randn(8))
"""
FACTORS = """
class Drawn:
    def __init__(self):
        self.value = 3

    def __rmul__(self, other):
        return other * self.value

FACTOR, DRAWN = 3, Drawn()
"""


def test_a_graph_keeps_the_operator_that_a_script_defines(write: Any, recorded: Recorder) -> None:
    """The script is not run again, so its graph is reduced: the repro has the operator, its fake
    kernel, the constant of another file, and no other node.
    """
    write("factors.py", FACTORS)
    file = write("script.py", ONLY_ONCE + CUSTOM.format(factor="FACTOR"))
    words = ("--no-ablate", "--budget", "30", "--", sys.executable, file)
    done = recorded(*words, **STUDIED)
    assert done.kind == "exception" and "scale is too hard" in done.json["signature"]["title"], (
        done.out
    )
    assert done.json["repro"], done.json["unproven"]
    text = Path(done.json["repro"]).read_text()
    assert "torch.library.custom_op('mine::scale'" in text and "register_fake" in text
    assert "factors" not in text and "sin" not in text, text


def test_a_graph_with_an_undefined_operator_is_not_a_repro(write: Any, recorded: Recorder) -> None:
    """An operator that uses an object with a state has no definition: the graph alone cannot show
    the failure, and the result names the operator and the reason.
    """
    write("factors.py", FACTORS)
    file = write("script.py", ONLY_ONCE + CUSTOM.format(factor="DRAWN"))
    words = ("--no-ablate", "--budget", "10", "--", sys.executable, file)
    done = recorded(*words, **STUDIED)
    assert_candidate(done, "run alone in a fresh process it")
    notes = " ".join(done.json["minimized"]["notes"])
    assert "mine::scale: Drawn cannot be written as Python text" in notes, notes
    assert "script.py has changed since it ran" in notes


VALUES = """
import torch

x = torch.full((2, 128), float(open("{data}").read()))
torch.compile(lambda x: (x + 1).var(1))(x)
"""


@pytest.mark.long
def test_a_wrong_result_of_only_some_values_has_a_repro_with_them(
    write: Any, tmp_path: Path
) -> None:
    """The variance of a constant 1e30 is infinite in torch 2.13 (0 in eager). With other inputs the
    variance is right, so the repro makes such inputs, and the result says so.
    """
    data = tmp_path / "data.txt"
    data.write_text("1e30")
    words = ("--output-dir", tmp_path / "out", "--compare", "--", sys.executable)
    script = write("script.py", VALUES.format(data=data))
    done = reprokit("capture", "--json", *words, script, env=clean_environ(**STUDIED))
    assert done.kind == "wrong-result", done.out
    text, minimized = Path(done.json["repro"]).read_text(), done.json["minimized"]
    assert "torch.full((" in text and "1e+30)" in text and "assert_close" in text, text
    assert minimized["proof"]["answer"] == "same", text
    assert "all are 1e+30" in minimized["depends_on"][0]
