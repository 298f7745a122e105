"""Failures that stop no program are found, and programs that only seem to have one are not
reported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.reduce import loud_failures
from reprokit.host.minimize.candidate_text import count_code_lines
from tests.support.environments import ROOT, clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.recordings import Recorder, pack_recording
from tests.support.reprokit_calls import CallResult, reprokit

SAMPLES = ROOT / "samples"
COMPARES = {"REPROKIT_COMPARE": "1"}
SHARED = pytest.mark.real("the first of these tests makes a capture that is reduced and proved")


def capture(*words: str | Path, **more: str) -> CallResult:
    return reprokit("capture", "--json", *words, env=clean_environ(**{**COMPARES, **more}))


def recorded_wrong_result(recorded: Recorder) -> CallResult:
    """Return a recorded capture as that of the fixture ``wrong_result``."""
    steps = {**COMPARES, "REPROKIT_MINIMIZE": "1", "REPROKIT_ABLATE": "1"}
    words = (f"{SAMPLES / 'wrong_result.py'}:make", "--budget", "100")
    return recorded(*words, name="wrong-result", **steps)


def test_a_wrong_result_says_which_side_is_wrong_where_and_by_how_much(
    recorded: Recorder,
) -> None:
    """float64 decides which side is wrong; the part of the compiler and the pass are in the
    title.
    """
    wrong_result = recorded_wrong_result(recorded)
    assert (wrong_result.status, wrong_result.kind) == (1, "wrong-result")
    assert (
        wrong_result.json["signature"]["title"]
        == "wrong-result: inductor | numbers @ reinplace_inplaceable_ops"
    )
    first = wrong_result.json["comparison"]["differences"][0]
    assert first["side"] == "compiled" and first["what"] == "values" and first["name"] == "output"
    assert (
        0 < first["count"] < first["total"] == 24
        and first["max_abs"] > 1
        and 0 < first["mean_abs"] < first["max_abs"]
    )
    assert {d["name"] for d in wrong_result.json["comparison"]["differences"]} == {
        "output",
        "argument[0]",
    }
    assert wrong_result.json["verdict"]["work"]["op"] == "reinplace_inplaceable_ops"
    line = (SAMPLES / "wrong_result.py").read_text().splitlines().index(
        "    x[1:] = x[:-1].clone()"
    ) + 1
    departs = (
        "the first graph that departs from eager by itself is 0/0 (3 operators), and the first"
        f" operator in it is `setitem` at wrong_result.py:{line} in shift"
    )
    assert departs in (wrong_result.run_dir / "verdict.json").read_text()


def test_the_ablation_of_a_wrong_result_is_in_the_issue(recorded: Recorder) -> None:
    """The issue has the ablation as a sentence with its evidence, and the label of the
    maintainers.
    """
    wrong_result = recorded_wrong_result(recorded)
    assert wrong_result.json["ablation"]["label"] == "module: inductor"
    issue = Path(wrong_result.json["issue"]).read_text()
    assert (
        'fails with backend="inductor" and passes with no torch.compile' in issue
        and "`module: inductor`" in issue
    )


def test_a_conversion_that_does_not_fit_is_not_filed(write: Any, recorded: Recorder) -> None:
    """C++ leaves it undefined, so eager and compiled code may differ."""
    text = (
        "import torch\n\ndef f(x):\n    return (x * 1e20).char()\n\n"
        "def make():\n    return f, (torch.arange(1.0, 8.0),)\n"
    )
    done = recorded(f"{write('bins.py', text)}:make", **COMPARES, REPROKIT_ABLATE="1")
    verdict = done.json["verdict"]
    assert (done.status, done.kind, verdict["responsible"]) == (1, "wrong-result", "unknown")
    assert verdict["responsible_because"] == [
        "The program converts a value from float32 to int8 that does not fit, and the result of"
        " such a conversion is undefined."
    ]
    assert verdict["responsible_place"].endswith("bins.py:4")
    assert done.json["decision"]["action"] == "nothing"


@SHARED
def test_the_repro_of_a_wrong_result_fails_by_itself(wrong_result: CallResult) -> None:
    """The repro has a few lines that need only torch: both runs, and an assertion that names the
    difference.
    """
    assert (wrong_result.status, wrong_result.kind) == (1, "wrong-result")
    title = "wrong-result: inductor | numbers @ reinplace_inplaceable_ops"
    assert wrong_result.json["signature"]["title"] == title
    assert wrong_result.json["ablation"]["label"] == "module: inductor"
    minimized = wrong_result.json["minimized"]
    assert (
        minimized["proof"]["answer"] == "same"
        and minimized["proof"]["hits"] == minimized["proof"]["runs"] == 1
    ), minimized
    assert minimized["proof"]["eager"] == "passes" and minimized["lines"] <= 14
    repro = Path(wrong_result.json["repro"])
    assert ".clone()" in repro.read_text() and "assert_close" in repro.read_text()
    done = subprocess.run(
        [sys.executable, repro], env=clean_environ(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "Tensor-likes are not close" in done.stderr


@pytest.mark.long
def test_a_wrong_result_is_replayed(wrong_result: CallResult) -> None:
    """The program of the pack gives wrong results at the same place of the compiler."""
    again = reprokit("replay", wrong_result.json["pack"], "--yes", "--json")
    assert (again.status, again.json["answer"]) == (0, "same"), again.out + again.err


@SHARED
def test_results_leave_no_trace_of_the_users_data(wrong_result: CallResult) -> None:
    """The results of the runs are deleted after the comparison and never packed."""
    assert not list(Path(wrong_result.json["run_dir"]).rglob("*.pt"))


@SHARED
def test_a_comparison_and_its_location_are_restored(wrong_result: CallResult) -> None:
    """A second judgement of the run directory runs nothing and has all data."""
    assert_judged_alike(wrong_result)


def test_calls_that_were_not_compared_are_counted(write: Any, recorded: Recorder) -> None:
    """Calls beyond the limit are counted, so a partial comparison does not look complete."""
    text = (
        "import torch\ndef make():\n    return {'model': torch.sin, 'calls': [((torch.ones(3),),"
        " {})] * 203}\n"
    )
    done = recorded(f"{write('many.py', text)}:make", "--backend", "eager", **COMPARES)
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    assert done.json["comparison"]["skipped_calls"] == 3
    assert "3 calls were not compared" in (done.run_dir / "verdict.json").read_text()
    (done.run_dir / "steps" / "comparison.json").unlink()
    again = pack_recording(done.run_dir, "--json", **COMPARES)
    assert again.kind == "ok" and again.json["comparison"] is None
    assert "comparison with eager" in {row["what"] for row in again.json["missing"]}


FAIR = {
    "random": (
        "inductor",
        "return torch.nn.functional.dropout(x, 0.5, training=True)",
        "those of eager within tolerance",
    ),
    # it overflows in half precision, in which compiled code keeps no intermediate values
    "eager is wrong": (
        "inductor",
        "h = x.half() * 300; return h * h / h",
        "than the results of eager are: output: inf at index [",
    ),
    # make() leaves holes in memory that contain the process id, so each run reads different values
    "uninitialised": (
        "aot_eager",
        "return torch.empty(64) + x[0]",
        "Eager itself gives a different output each time",
    ),
    "odd": (  # changes its argument and a global, works once, and returns more than tensors
        "aot_eager",
        "x.add_(1); SEEN.append(ONCE.pop()); return x * len(SEEN), x.shape[0], 'two', None, object",
        "those of eager within tolerance",
    ),
}
FAIR_TEXT = """
import os
import torch

SEEN, ONCE, HELD = [], [1], []

def f(x):
    {body}

def make():
    HELD.extend(torch.full((64,), float(os.getpid())) for _ in range(50000))
    del HELD[::2]
    return f, (torch.linspace(0.1, 9, 64),)
"""


def write_fair(name: str, write: Any) -> tuple[str, str, str]:
    """Return the words of a capture of a program that only looks wrong."""
    backend, body, _ = FAIR[name]
    return f"{write('target.py', FAIR_TEXT.format(body=body))}:make", "--backend", backend


def check_fair(name: str, done: CallResult) -> None:
    """Check that the verdict is ok and says why."""
    assert (done.status, done.kind) == (0, "ok"), done.out
    assert done.json["comparison"] is not None, done.json["missing"]
    assert FAIR[name][2] in (done.run_dir / "verdict.json").read_text()


@pytest.mark.real("it compares a run with several runs of eager")
def test_uninitialized_memory_gets_a_clear_statement(write: Any, tmp_path: Path) -> None:
    """A program that reads uninitialized memory gives no verdict against the compiler."""
    done = capture(*write_fair("uninitialised", write), "--output-dir", tmp_path / "out")
    check_fair("uninitialised", done)


@pytest.mark.parametrize("name", sorted({*FAIR} - {"uninitialised"}))
def test_a_program_that_only_looks_wrong_gets_a_clear_statement(
    name: str, write: Any, recorded: Recorder
) -> None:
    """Programs that are random, mutate, have no tensors or are wrong in eager give no verdict
    against the compiler.
    """
    check_fair(name, recorded(*write_fair(name, write), **COMPARES))


def test_gradients_are_compared(write: Any, recorded: Recorder) -> None:
    """A wrong backward pass with a correct forward pass is reported as a gradient."""
    text = """
import torch

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * (3 if COMPILED else 2)

COMPILED = False

def lies(gm, inputs):
    def run(*args):
        global COMPILED
        COMPILED = True
        return gm.forward(*args)
    return run

def f(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return Doubled.apply(y) if not torch.compiler.is_compiling() else y * 2

def make():
    x = torch.linspace(-1, 1, 8, requires_grad=True)
    def model(x):
        return Doubled.apply(torch.compiler.disable(lambda t: t)(x.sin()))
    return {"model": model, "calls": [((x,), {})], "compile": {"backend": lies}, "train": True}
"""
    file = write("grads.py", text)
    done = recorded(f"{file}:make", **COMPARES)
    assert done.kind == "wrong-result", done.out
    names = {d["name"] for d in done.json["comparison"]["differences"]}
    assert names == {"gradient of argument[0]"}
    assert done.json["signature"]["title"].endswith("numbers of the backward")
    if recorded.mode != "fresh":  # the interpreter of a recorded run, which knows them, is gone
        assert "not torch's default" not in Path(done.json["issue"]).read_text()


def test_an_integer_of_a_cache_is_the_guard_that_fails(recorded: Recorder) -> None:
    """The verdict has the function, the guard, the changing value and the user's line; with the
    index in a tensor the run is healthy.
    """
    done = recorded(SAMPLES / "kv_cache.py:make", out="broken")
    assert (done.status, done.kind) == (0, "recompile-limit"), done.out
    assert done.json["signature"]["title"] == "recompile-limit: guards | <input>._current_idx == #"
    assert "the guard that fails is self._current_idx == " in done.json["verdict"]["reason"]
    assert "kv_cache.py:" in done.json["verdict"]["work"]["line"]
    fixed = recorded(SAMPLES / "kv_cache.py:make_fixed", out="fixed", **COMPARES)
    assert (fixed.status, fixed.kind) == (0, "ok"), fixed.out


@pytest.mark.real
def test_what_works_in_pytorch_fails_if_the_user_says_so(tmp_path: Path) -> None:
    """The exit code is 0 for a recompile limit, unless ``--fail-on`` names it."""
    words = ("capture", "--no-minimize", "--output-dir")
    target = SAMPLES / "kv_cache.py:make"
    tolerated = reprokit(*words, tmp_path / "a", "--fail-on", "graph-break:2", target)
    failed = reprokit(*words, tmp_path / "b", "--fail-on", "recompile,cudagraph-skip", target)
    assert (tolerated.status, failed.status) == (0, 1), failed.out
    run_dir = next((tmp_path / "b").glob("run-*"))
    assert reprokit("pack", run_dir).status == 1
    issue = next((tmp_path / "b").glob("*.tar.gz"))
    assert "--fail-on recompile,cudagraph-skip" in reprokit("show", issue, "--json").out


COUNTING = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return x.sin() * self.steps
"""
COUNTED = f"""{COUNTING}
net = torch.compile(Net(), backend="eager")
for n in range(12):
    net(torch.ones(3))
"""
SIZED = """
import torch

@torch.compile(backend="eager", dynamic=False)
def double(rows):
    return rows * 2

for n in range(2, 14):
    double(torch.ones(n, 3))
"""
READ = """
import torch

@torch.compile(backend="eager")
def scale(x):
    peak = x.abs().max().item()
    return x / peak

scale(torch.ones(3))
"""
SCALED = """
import torch

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1

    def forward(self, rows):
        return rows * self.scale

model = Scale()
compiled = torch.compile(model, backend="eager", dynamic=False)
for n in range(2, 13):
    rows = torch.ones(n, 3)
    model.scale = n
    compiled(rows)
"""
TIMED = """
import time
import torch

TIMES = []

@torch.compile(backend="eager")
def scale(x):
    TIMES.append(time.time())
    y = torch.relu(x) * 2
    return y

scale(torch.ones(3))
"""
CHECK = """
from torch._dynamo.utils import counters
assert not counters["graph_break"] and counters["stats"]["unique_graphs"] <= 3, counters
"""


@pytest.mark.real("changes of the program are tried in processes of their own")
@pytest.mark.parametrize(
    ("program", "kind", "remedy", "edit"),
    [
        (COUNTED, "recompile-limit", "self.steps = torch.tensor(0)", ("= 0", "= torch.tensor(0)")),
        (
            SIZED,
            "recompile-limit",
            "torch._dynamo.mark_dynamic(rows, 0) before each call",
            (
                "double(torch.ones(n, 3))",
                "rows = torch.ones(n, 3); torch._dynamo.mark_dynamic(rows, 0); double(rows)",
            ),
        ),
        (
            SCALED,
            "recompile-limit",
            "self.scale = torch.tensor(1)",
            (
                "model.scale = n",
                "model.scale = torch.tensor(n); torch._dynamo.mark_dynamic(rows, 0)",
            ),
        ),
        (READ, "graph-break", "peak = x.abs().max()", (".max().item()", ".max()")),
        (
            TIMED,
            "graph-break",
            "`TIMES.append(time.time())` moved before the compiled function",
            ("    TIMES.append(time.time())\n", ""),
        ),
    ],
    ids=["attribute", "size", "both", "item", "time"],
)
def test_the_change_that_avoids_it_is_tried_and_named(
    program: str, kind: str, remedy: str, edit: tuple[str, str], write: Any, tmp_path: Path
) -> None:
    """The program of a user who follows the advice compiles at most three graphs, without a break,
    as torch itself counts.
    """
    file = write("counted.py", program)
    words = ("--fail-on", "graph-break,recompile", "--no-minimize", "--output-dir", tmp_path / "o")
    done = reprokit(
        "capture", *words, "--", sys.executable, file, env=clean_environ(REPROKIT_ABLATE="1")
    )
    (advice,) = (row for row in done.out.splitlines() if row.startswith("avoid it"))
    assert done.status == 1 and done.out.startswith(kind) and remedy in advice, done.out
    assert ("your program" in done.out) is (program != TIMED) and "(not tried)" not in advice
    for text, status in ((program, 1), (program.replace(*edit), 0)):
        plain = write("plain.py", text + CHECK)
        ended = subprocess.run([sys.executable, plain], capture_output=True, check=False)
        assert ended.returncode == status, ended.stderr


@pytest.mark.long
def test_recompiles_are_reduced_to_the_attribute_that_changes(write: Any, tmp_path: Path) -> None:
    """The reduced program recompiles for the same reason, and fails by itself."""
    expected = (
        '{"model": Net(), "calls": [((torch.ones(3),), {})] * 7, "compile": {"backend": "eager"}}'
    )
    file = write(
        "steps.py",
        f"{COUNTING}\ntorch._dynamo.config.recompile_limit = 64\ndef make(): return {expected}\n",
    )
    words = ("--budget", "100", "--output-dir", tmp_path / "out")
    done = capture(f"{file}:make", *words, REPROKIT_COMPARE="0", REPROKIT_MINIMIZE="1")
    assert done.kind == "recompile-storm"
    minimized = done.json["minimized"]
    assert (
        minimized["proof"]["answer"] == "same"
        and minimized["proof"]["hits"] == minimized["proof"]["runs"]
    ), minimized
    text = Path(done.json["repro"]).read_text()
    assert "steps" in text and "'compiled again and again'" in text and minimized["lines"] <= 18, (
        text
    )


@pytest.mark.real("it reduces and proves a recompile limit")
def test_a_recompile_limit_that_a_repro_makes_an_error_is_the_same_failure(
    write: Any, tmp_path: Path
) -> None:
    """torch's own error, which ends the program, has the name of the limit that was only exceeded
    in the capture.
    """
    text = (
        f"{COUNTING}\nnet = torch.compile(Net(), backend='eager')\nfor _ in range(3):\n   "
        " net(torch.ones(3))\n"
    )
    text = text.replace(
        "import torch\n", "import torch\ntorch._dynamo.config.recompile_limit = 2\n", 1
    )
    loud = loud_failures.fail_loudly(text, "recompile-limit")
    seen = [
        capture(
            "--output-dir",
            tmp_path / name,
            "--",
            sys.executable,
            write(f"{name}.py", source),
            REPROKIT_COMPARE="0",
        )
        for name, source in (("still", text), ("loud", loud))
    ]
    assert [done.kind for done in seen] == ["recompile-limit"] * 2, seen[1].out
    assert seen[0].json["signature"] == seen[1].json["signature"]


def test_graph_breaks_fail_when_they_are_not_wanted(write: Any, recorded: Recorder) -> None:
    """Graph breaks fail with fullgraph and beyond a budget; otherwise they are only reported."""
    broken = (
        "import torch\ndef f(x):\n    y = x.sin()\n    torch._dynamo.graph_break()\n    return"
        " y.cos()\ndef make():\n    return f, (torch.ones(3),)\n"
    )
    file = write("breaks.py", broken)
    words = (f"{file}:make", "--backend", "eager")
    allowed = recorded(*words, out="a")
    assert (
        allowed.kind == "ok" and "graph break at" in (allowed.run_dir / "verdict.json").read_text()
    )
    counted = recorded(*words, "--fail-on", "graph-break", out="b")
    whole = recorded(*words, "--fullgraph", out="c")
    assert (counted.status, counted.kind, whole.status, whole.kind) == (
        1,
        "graph-break",
        1,
        "graph-break",
    )
    assert counted.json["signature"] == whole.json["signature"]
    assert "breaks.py:4" in counted.json["verdict"]["reason"]


@pytest.mark.real
def test_graph_breaks_fail_if_nothing_was_compiled(write: Any, tmp_path: Path) -> None:
    """The verdict has the line and the reason, and a repro that reads the counters of Dynamo has
    the same signature.
    """
    given_up = reprokit(
        "capture", "--json", SAMPLES / "graph_break.py:make", "--output-dir", tmp_path / "d"
    )
    assert (
        given_up.kind == "graph-break"
        and "nothing was compiled" in given_up.json["verdict"]["reason"].lower()
    )
    assert (
        "graph_break.py:" in given_up.json["verdict"]["reason"]
        and "item()" in given_up.json["signature"]["title"]
    )
    assert_judged_alike(given_up)
    # with a whole graph the failure is different, so its repro reads the counters of Dynamo
    text = (
        "import torch\ndef f(x):\n    return x if x.item() else -x\ntorch.compile(f,"
        ' backend="eager")(torch.ones(1))\n'
    )
    checked = reprokit(
        "capture",
        "--json",
        "--output-dir",
        tmp_path / "e",
        "--",
        sys.executable,
        write("checked.py", loud_failures.assert_unbroken(text)),
    )
    assert (checked.kind, checked.json["signature"]) == (
        "graph-break",
        given_up.json["signature"],
    ), checked.out


def test_a_command_is_compared_on_request(write: Any, recorded: Recorder) -> None:
    """The process of the program has the results, not the launcher, which also imports torch."""
    child = SAMPLES / "wrong_result.py"
    launcher = write(
        "launch.py",
        f"import subprocess, sys, torch\nsubprocess.run([sys.executable, {str(child)!r}],"
        " check=True)\n",
    )
    done = recorded("--compare", "--", sys.executable, launcher, **COMPARES)
    assert (done.status, done.kind) == (1, "wrong-result"), done.out
    assert done.json["comparison"]["differences"][0]["side"] == "compiled"


OWN_CHECK = """
import torch

def f(x):
    return torch.clamp(x, max=1).mul_(2)

def wrong(gm, inputs):
    return lambda *args: [result + {error} for result in gm.forward(*args)]

got = torch.compile(f, backend=wrong)(torch.ones(3))
graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
assert {check}
"""


def check_own_check(kind: str, words: str, done: CallResult) -> None:
    """Check the verdict of a program whose own check fails."""
    assert (done.status, done.kind) == (1, kind), done.json["verdict"]
    assert words in done.json["verdict"]["reason"], (done.json, done.err)
    party = {"failed-check": "unknown", "error-in-eager": "user", "wrong-result": "unknown"}[kind]
    assert done.json["verdict"]["responsible"] == party, done.json["verdict"]


@pytest.mark.long
def test_a_program_that_checks_its_results_is_compared_with_eager(
    write: Any, tmp_path: Path
) -> None:
    """The program is run again without torch.compile, and its wrong results are named."""
    text = OWN_CHECK.format(error="1", check="torch.equal(got, f(torch.ones(3)))")
    script = write("script.py", text)
    done = capture("--compare", "--output-dir", tmp_path / "out", "--", sys.executable, script)
    check_own_check("wrong-result", "eager gives 2", done)
    assert_judged_alike(done)


@pytest.mark.parametrize(
    ("check", "kind", "words"),
    [
        ("graphs == 0", "failed-check", 'fails with torch.compile, also with backend="eager"'),
        ("got.sum() == 7", "error-in-eager", "fails without torch.compile too"),
    ],
)
def test_the_check_of_a_program_is_judged_with_a_run_in_eager(
    write: Any, recorded: Recorder, check: str, kind: str, words: str
) -> None:
    """A failed assertion of a program shows a difference that no result shows, or an error of the
    program.
    """
    script = write("script.py", OWN_CHECK.format(error="0", check=check))
    done = recorded("--compare", "--", sys.executable, script, **COMPARES)
    check_own_check(kind, words, done)


@pytest.mark.real
@pytest.mark.parametrize(
    ("error", "check", "kind", "words"),
    [
        ("1", "torch.equal(got, f(torch.ones(3)))", "wrong-result", "eager gives 2"),
        ("0", "graphs == 0", "failed-check", 'fails with torch.compile, also with backend="eager"'),
        ("0", "got.sum() == 7", "error-in-eager", "fails without torch.compile too"),
    ],
)
def test_the_check_of_a_program_is_tried_without_torch_compile(
    write: Any, tmp_path: Path, error: str, check: str, kind: str, words: str
) -> None:
    """No option is needed: an isolated copy runs, which writes nothing outside."""
    leave = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
    script = write("script.py", OWN_CHECK.format(error=error, check=check) + "\n")
    script.write_text(leave + script.read_text())
    command = ("--", sys.executable, script)
    done = reprokit("capture", "--json", "--output-dir", tmp_path / "out", *command)
    check_own_check(kind, words, done)
    assert (tmp_path / "count").read_text() == "x"
    assert_judged_alike(done)


@pytest.mark.real
def test_a_copy_that_ends_in_a_different_way_is_not_said_to_be_missing(
    write: Any, tmp_path: Path
) -> None:
    """The run shows nothing about the failure, but it was made."""
    text = (
        f"import os, sys, torch\nif os.path.exists({str(tmp_path / 'x')!r}):\n    sys.exit(3)\n"
        f"open({str(tmp_path / 'x')!r}, 'w')\ntorch.compile(torch.sin, backend='eager')(torch.ones(2))\n"
        "raise ValueError('mine')\n"
    )
    script = write("script.py", text)
    out = ("--output-dir", tmp_path / "out")
    done = reprokit("capture", "--json", *out, "--", sys.executable, script)
    assert (
        "without torch.compile, a copy of the program ended in a different way"
        in (done.json["verdict"]["reason"])
    ), (done.json["verdict"], done.err)
    assert "exit status 3" in done.json["verdict"]["reason"]


AOT_ONLY = """
import torch

def f(x):
    y = x.chunk(2, 1)[-1].unsqueeze(0).view(torch.int32)
    return y.view_as(y), y.squeeze(2)

x = torch.ones(1, 4, requires_grad=True)
assert torch.compile(f, backend="aot_eager", dynamic=True)(x)[0].dtype == torch.int32
"""
"""Inductor gives the right result; hunt#20 of the catalogue."""


@pytest.mark.long
def test_a_repro_keeps_the_backend_that_the_failure_needs(write: Any, tmp_path: Path) -> None:
    """Reduced programs are compiled with the part of the compiler that fails, whatever they say."""
    script = write("script.py", AOT_ONLY)
    command = ("--minimize", "--output-dir", tmp_path / "out", "--", sys.executable, script)
    done = capture(*command)
    assert (done.kind, done.json["verdict"]["phase"]) == ("wrong-result", "aot"), done.out
    repro = Path(done.json["repro"]).read_text()
    assert "backend='aot_eager'" in repro
    assert count_code_lines(repro) <= 12, repro


FAILS_ONCE = """
import os, sys, torch

has_run = os.path.exists({path!r})
open({path!r}, "w")

def backend(gm, inputs):
    def call(*args):
        if has_run:
            {end}
        return gm(*args)
    return call

torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
assert has_run or torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        ("os.abort()", "exception", "copy passes; compiled, it was killed by SIGABRT"),
        (
            "sys.exit(3)",
            "error-in-eager",
            "with it, a copy ended in a different way: exit status 3",
        ),
        ("pass", "error-in-eager", "copy of the program passes; with it, a copy passes too"),
    ],
)
def test_what_copies_with_and_without_torch_compile_show_is_said(
    write: Any, tmp_path: Path, end: str, kind: str, words: str
) -> None:
    """A copy that a signal kills only with torch.compile shows that the failure depends on it."""
    script = write("script.py", FAILS_ONCE.format(path=str(tmp_path / "x"), end=end))
    out = ("--output-dir", tmp_path / "out")
    done = reprokit("capture", "--json", *out, "--", sys.executable, script)
    verdict = done.json["verdict"]
    assert (verdict["kind"], words in verdict["reason"]) == (kind, True), (done.json, done.err)
    assert "not run without" not in verdict["reason"]


SIDE_EFFECT = """
import torch

class Batches:
    def __init__(self, log):
        self.log = log

    def read(self):
        try:
            for number in range(3):
                yield number
        finally:
            self.log.append("closed")

log = []
batches = Batches(log)

@torch.compile
def first(x):
    y = torch.sin(x) * 2
    for number in batches.read():
        y = y + number
        break
    return y.cos()

for step in range(2):
    print("sum", first(torch.ones(3)).sum().item())
{ends}
"""
ENDS = {
    "assertion": 'assert log == ["closed", "closed"], f"a file was left open: {log}"',
    "exit status": """import sys
if len(log) != 2:
    sys.exit(3)""",
}
"""Two checks of what no result shows: the list of pytorch#157149, whose last part Dynamo leaves out."""


@pytest.mark.real("a program is compiled by three backends, reduced and proved")
@pytest.mark.parametrize("name", ["assertion", pytest.param("exit status", marks=pytest.mark.long)])
def test_a_check_of_a_side_effect_is_reduced_and_proved(
    write: Any, tmp_path: Path, name: str
) -> None:
    """The repro keeps the check as it is, and fails in a fresh process without reprokit."""
    script = write("script.py", SIDE_EFFECT.replace("{ends}", ENDS[name]))
    done = capture("--minimize", "--output-dir", tmp_path / "out", "--", sys.executable, script)
    verdict = done.json["verdict"]
    assert (done.status, verdict["kind"], verdict["phase"]) == (1, "failed-check", "dynamo"), (
        verdict
    )
    assert verdict["responsible"] == "torch"
    assert 'also with backend="eager", and not without' in verdict["reason"]
    assert done.json["repro"], done.json["minimized"]
    repro = tmp_path / "repro.py"
    text = Path(done.json["repro"]).read_text()
    repro.write_text(text)
    assert "log" in text and done.json["minimized"]["lines"] <= 20, text
    ended = subprocess.run([sys.executable, str(repro)], capture_output=True, text=True)
    assert ended.returncode == (1 if name == "assertion" else 3), ended.stderr
    plain = subprocess.run(
        [sys.executable, str(repro)], env=clean_environ(TORCH_COMPILE_DISABLE="1")
    )
    assert plain.returncode == 0


ROUNDED = """
import sys
import torch

def f(x, w):
    return torch.softmax(x @ w, -1).sum(0) / 3

torch.manual_seed(0)
x, w = torch.randn(64, 64), torch.randn(64, 64)
if not torch.equal(torch.compile(f)(x, w), f(x, w)):
    raise ValueError("not bitwise equal")
"""


@pytest.mark.real("three runs of one program, two of them compiled by Inductor")
def test_a_check_that_rounding_explains_is_nobody_s_defect(write: Any, tmp_path: Path) -> None:
    """It fails with Inductor only, and the compared results agree."""
    script = write("script.py", ROUNDED)
    done = reprokit(
        "capture", "--json", "--output-dir", tmp_path / "out", "--", sys.executable, script
    )
    verdict = done.json["verdict"]
    assert (verdict["kind"], verdict["responsible"]) == ("exception", "unknown"), verdict
    assert done.json["minimized"] is None


NOISY = """
import os
import torch

def noisy(gm, inputs):
    def run(*args):
        (y,) = gm.forward(*args)
        noise = torch.frombuffer(bytearray(os.urandom(4)), dtype=torch.uint8).float()
        return (y + 1 + noise.sum(),)

    return run

def net(x):
    return torch.relu(x) * 2

def make():
    return {"model": net, "calls": [((torch.ones(8),), {})], "compile": {"backend": noisy}}

def uninitialized(x):
    return torch.relu(x) + torch.frombuffer(bytearray(os.urandom(4)), dtype=torch.uint8).sum()

def make_unsteady():
    return {"model": uninitialized, "calls": [((torch.ones(8),), {})], "compile": {"backend": "eager"}}
"""


def check_noisy(done: CallResult) -> None:
    """Check that the compiled code, and not eager, is said to differ from itself."""
    assert (done.status, done.kind) == (1, "nondeterministic"), done.out + done.err
    assert done.json["signature"]["title"].startswith("nondeterministic: ")
    assert "different results each time, and eager does not" in done.json["verdict"]["reason"]


@pytest.mark.long
def test_compiled_code_that_differs_from_itself_is_found(write: Any, tmp_path: Path) -> None:
    """The compiled program gives other wrong results each time; eager agrees with itself."""
    check_noisy(capture(f"{write('noisy.py', NOISY)}:make", "--output-dir", tmp_path / "out"))


def test_compiled_code_that_differs_from_itself_is_named(write: Any, recorded: Recorder) -> None:
    """The verdict names it, and the repro is proved with runs of eager that pass."""
    file = write("noisy.py", NOISY)
    done = recorded(f"{file}:make", **COMPARES, REPROKIT_MINIMIZE="1")
    check_noisy(done)
    assert done.json["repro"], done.json["missing"]
    proof = done.json["minimized"]["proof"]
    assert proof["hits"] == proof["runs"] and proof["eager"] == "passes", proof


def test_eager_that_differs_from_itself_is_not_blamed_on_the_compiler(
    write: Any, recorded: Recorder
) -> None:
    """A program whose results are random in eager too gives no verdict against the compiler."""
    done = recorded(f"{write('noisy.py', NOISY)}:make_unsteady", **COMPARES)
    assert done.kind not in ("nondeterministic", "wrong-result"), done.out
