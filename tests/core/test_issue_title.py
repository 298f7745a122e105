"""The title and the first sentence of an issue, and tracebacks in Python's format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.core.judge.stacks import python_traceback
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.finding import Verdict, identity_of_title
from reprokit.core.records.observation import Observation
from reprokit.core.triage import issue_title

SOFTMAX = """import torch

def repro():
    mask = torch.full((8, 8), 10000.0)
    mask[torch.arange(8)] = 0
    return torch.softmax(mask, dim=1)

torch.compile(repro)()
"""
CPP_FRAME = Frame("/x/site-packages/torch/_inductor/codegen/cpp.py", "codegen_node", 5904)


@pytest.mark.parametrize(
    ("title", "phase", "seen", "program", "expected"),
    [
        (
            "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr",
            "codegen",
            Observation(raised=Raised((Link("KeyError", "'buf1'", (CPP_FRAME,)),))),
            SOFTMAX,
            "[inductor][cpp] KeyError: 'buf...' in get_read_expr (indexed assignment, softmax)",
        ),
        (
            "exception: dynamo-trace | torch._dynamo.exc.Unsupported: call # @"
            " torch/_dynamo/variables/base.py:VariableTracker.call_function",
            "dynamo-trace",
            Observation(),
            "",
            "[dynamo] Unsupported: call ... in call_function",
        ),
        (
            "exception: cpp-build | CppCompileError: conflicting x @ torch/_inductor/b.py:_run_cmd",
            "cpp-build",
            Observation(),
            "",
            "[inductor][cpp] CppCompileError: conflicting x",
        ),
        (
            "hang: fx-passes | torch/_inductor/pattern_matcher.py:apply < torch/fx/graph.py:lint",
            "fx-passes",
            Observation(),
            "import torch\ndef f(x):\n    return x.cumsum(0) @ x\n",
            "[inductor] hang while running FX passes in apply (cumsum, matmul)",
        ),
        (
            "wrong-result: inductor | values @ aten.index_put_",
            "inductor",
            Observation(failing_part="inductor"),
            "",
            "[inductor] wrong result: values in aten.index_put_",
        ),
        (
            "crash: kernel-run | SIGSEGV",
            "kernel-run",
            Observation(),
            "def f(x):\n    return x * 2\nmodel = torch.func.jacfwd(f)\n",
            "[inductor] SIGSEGV while running compiled code (jacfwd, mul)",
        ),
        (  # the backend is the program's, so Inductor was not called
            "exception: backend | KeyError: 'buf#' @ <user>:train.picky",
            "backend",
            Observation(own_backend="train.py:7"),
            SOFTMAX,
            "[torch.compile] KeyError: 'buf...' (indexed assignment, softmax)",
        ),
        (  # the code that runs is that of AOTAutograd, with any backend
            "exception: kernel-run | RuntimeError: no double backward @"
            " torch/_functorch/_aot_autograd/runtime_wrappers.py:backward",
            "kernel-run",
            Observation(),
            "",
            "[aot] RuntimeError: no double backward in backward",
        ),
        (  # the backend is a wrapper of torch, which Dynamo has
            "exception: backend | AssertionError: first @ torch/_dynamo/backends/distributed.py:f",
            "backend",
            Observation(),
            "",
            "[dynamo] AssertionError: first in f",
        ),
        (
            "exception: codegen | ValueError: " + "long words " * 30 + "@ <user>:f",
            "codegen",
            Observation(),
            SOFTMAX,
            "[inductor] ValueError: "
            + ("long words " * 5)[:-1]
            + "... (indexed assignment, softmax)",
        ),
    ],
)
def test_title(title: str, phase: str, seen: Observation, program: str, expected: str) -> None:
    """The module, the error in words, the function and the operations."""
    verdict = Verdict(title.partition(":")[0], phase, None, "")
    written = issue_title.make_issue_title(verdict, identity_of_title(title), seen, program)
    assert written == expected and len(written) <= issue_title.MAX_TITLE_CHARS


def test_the_first_sentence_has_the_error() -> None:
    """It names the innermost exception and what the compiler did."""
    raised = Raised((Link("KeyError", "'buf1'"),))
    verdict = Verdict("exception", "codegen", "KeyError", "it was raised")
    exported = Verdict("exception", "export", "KeyError", "it was raised")
    sentence = issue_title.first_sentence(exported, Observation(raised=raised))
    assert sentence.startswith("`torch.export` raises `KeyError: 'buf1'`")
    assert (
        issue_title.first_sentence(verdict, Observation(raised=raised))
        == "`torch.compile` raises `KeyError: 'buf1'` while generating code."
    )
    evidence = ("message: conflicting declaration 'auto x'",)
    built = Raised(
        (Link("torch._inductor.exc.CppCompileError", "C++ compile error\nCommand: g++"),)
    )
    verdict = Verdict("exception", "cpp-build", "CppCompileError", "it was raised", evidence)
    assert (
        issue_title.first_sentence(verdict, Observation(raised=built))
        == "`torch.compile` raises `CppCompileError: conflicting declaration 'auto x'` while"
        " compiling C++."
    )
    silent = Verdict("wrong-result", "inductor", None, "2 of 8 values differ")
    assert issue_title.first_sentence(silent, Observation()) == "2 of 8 values differ."
    crash = Verdict(
        "crash", "kernel-run", "SIGSEGV", "It was killed by SIGSEGV, in phase kernel-run."
    )
    assert (
        issue_title.first_sentence(crash, Observation())
        == "It was killed by SIGSEGV while running compiled code."
    )
    assert issue_title.operations_of("not python") == []
    program = (
        "def f(x):\n    x[1:] = g(x[:-1].clone())\n    return torch.ops.aten.add.Tensor(x, 1)\n"
    )
    assert issue_title.operations_of(program) == ["clone", "indexed assignment", "add"]


def test_a_real_traceback_is_shortened(tmp_path: Path) -> None:
    """Frames of packages have the path below site-packages and their source line; the frames of the
    program and the advice of torch are left out.
    """
    package = tmp_path / "lib" / "site-packages" / "torch" / "_inductor"
    package.mkdir(parents=True)
    (package / "deep.py").write_text(
        "def down(n):\n    if n == 0:\n        raise KeyError('buf1\\nSet TORCHDYNAMO_VERBOSE=1 x')\n"
        "    down(n - 1)\n"
    )
    program = tmp_path / "repro.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(package)!r})\nimport deep\ndeep.down(3)\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=60
    )
    short = python_traceback.shorten_traceback(done.stderr, "repro.py", max_frames=2)
    assert short == (
        "Traceback (most recent call last):\n  [2 outer frames left out]\n"
        '  File "torch/_inductor/deep.py", line 4, in down\n    down(n - 1)\n'
        '  File "torch/_inductor/deep.py", line 3, in down\n'
        "    raise KeyError('buf1\\nSet TORCHDYNAMO_VERBOSE=1 x')\n"
        "KeyError: 'buf1\\nSet TORCHDYNAMO_VERBOSE=1 x'"
    )
    # torch.distributed writes the rank before each line
    of_rank = "".join(f"[rank0]: {line}" for line in done.stderr.splitlines(keepends=True))
    assert python_traceback.shorten_traceback(of_rank, "repro.py", max_frames=2) == short
    program.write_text("assert 1 == 2, 'compiled and eager differ'\n")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=60
    )
    short = python_traceback.shorten_traceback(done.stderr, "repro.py")
    assert short.splitlines()[1].startswith('  File "repro.py", line 1, in <module>')
    assert short.endswith("AssertionError: compiled and eager differ")
    assert python_traceback.shorten_traceback("no traceback", "repro.py") == ""
    output = "C++ compile error\nCommand:\ng++ x\n" + "/tmp/a/c1.cpp: In f:\n" * 9
    link = Link("CppCompileError", f"{output}/tmp/a/c1.cpp:9:2: error: no x\n")
    assert python_traceback.render_exception(link).splitlines() == [
        "CppCompileError: C++ compile error",
        "c1.cpp:9:2: error: no x",
        "[11 more lines]",
    ]


def test_a_recorded_exception_and_a_stack() -> None:
    """Both have Python's order: the innermost frame is last."""
    frames = (CPP_FRAME, Frame("/home/me/train.py", "main", 3), Frame("torch/x.py", "outer", 1))
    text = python_traceback.render_exception(Link("KeyError", "'buf1'", frames))
    assert text.splitlines() == [
        "Traceback (most recent call last):",
        '  File "torch/x.py", line 1, in outer',
        '  File "torch/_inductor/codegen/cpp.py", line 5904, in codegen_node',
        "KeyError: 'buf1'",
    ]
    assert python_traceback.render_stack(frames, 2).splitlines() == [
        "  [1 outer frame left out]",
        '  File "train.py", line 3, in main',
        '  File "torch/_inductor/codegen/cpp.py", line 5904, in codegen_node',
    ]


def test_a_message_that_quotes_the_program_has_no_path_of_the_machine() -> None:
    """Dynamo and AOTAutograd append the user's lines to the message."""
    text = (
        'Traceback (most recent call last):\n  File "/env/site-packages/torch/_ops.py", line 1, in f\n'
        "    g()\nRuntimeError: aliasing\nOriginal traceback:\n"
        '  File "/work/o/run-001/minimize/proof/alone/repro.py", line 13, in repro\n    return f(x)\n'
    )
    short = python_traceback.shorten_traceback(text, "repro.py")
    assert '  File "repro.py", line 13, in repro' in short and "/work" not in short
