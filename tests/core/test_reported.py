"""What the text of an issue says: its program, how it is run, and the failure that it reports."""

from __future__ import annotations

import dataclasses
import re
import time

import pytest

from reprokit.core.reported import answers, graph_inputs, issue_programs, requirements
from reprokit.core.reported.answers import CapturedRun
from reprokit.core.reported.issue_programs import CodeBlock, NoProgram
from reprokit.core.reported.reported_failure import (
    ReportedFailure,
    is_reported,
    read_command,
    read_failure,
)

PROGRAM = "import torch\n\n\ndef f(x):\n    return x + 1\n\n\ntorch.compile(f)(torch.ones(3))\n"


def block(text: str, language: str = "python", line: int = 1) -> CodeBlock:
    return CodeBlock(language, text, line)


def test_a_complete_program_is_taken_as_it_is() -> None:
    """Logs, shell commands and programs without a compiler are no candidates."""
    log = "torch._inductor.exc.InductorError: KeyError: 'buf1'\n"
    blocks = [
        block(log, ""),
        block("import torch\nprint(torch.ones(3))\n", line=5),
        block("pip install torch\n", "bash", 9),
        block(PROGRAM, "", 12),
    ]
    (found,) = issue_programs.find_programs(blocks)
    assert (found.text, found.lines, found.added) == (PROGRAM, (12,), ())


def test_a_fragment_gets_imports_and_the_blocks_that_define_its_names() -> None:
    """Only blocks that define a missing name are joined; imports come after ``__future__``."""
    blocks = [
        block("class Model(nn.Module):\n    def forward(self, x):\n        return F.relu(x)\n"),
        block("unused = torch.ones(3)\n", line=7),
        block("from __future__ import annotations\nmodel = torch.compile(Model())\n", line=9),
    ]
    (found,) = issue_programs.find_programs(blocks)
    assert found.lines == (1, 9)
    assert found.added == (
        "import torch.nn.functional as F",
        "from torch import nn",
        "import torch",
    )
    assert found.text.startswith("from __future__ import annotations\nimport torch.nn.functional")
    compile(found.text, "program", "exec")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch.compile(my_model)(x)\n", "uses my_model, x, which no block defines"),
        ("import torch\nprint(torch.ones(3))\n", "no program of the text enters the compiler"),
        ("Segmentation fault (core dumped)\n", "no code block of the text is a Python program"),
        ("KeyError: 'buf1'\n", "no code block of the text is a Python program"),
    ],
)
def test_nothing_is_guessed(text: str, words: str) -> None:
    """A name without a definition, a program without a compiler and a log are refused in words."""
    with pytest.raises(NoProgram, match=words):
        issue_programs.find_programs([block(text, "")])


def test_a_comment_does_not_enter_the_compiler() -> None:
    """A program whose decorator is commented out is not the one that fails."""
    passing = PROGRAM.replace("torch.compile(f)(", "# torch.compile\nf(")
    found = issue_programs.find_programs([block(passing), block(PROGRAM, line=20)])
    assert [program.lines for program in found] == [(20,)]


def test_a_decorator_in_a_comment_and_a_function_without_arguments_are_compiled() -> None:
    """Both say what is compiled. A function with an argument leaves a doubt."""
    text = "import torch\n\n#@torch.compile(fullgraph=True)\ndef f():\n    return torch.ones(3)\n\nf()\n"
    (found,) = issue_programs.find_programs([block(text)])
    assert "\n@torch.compile(fullgraph=True)\ndef f" in found.text
    assert found.added == ("@torch.compile(fullgraph=True)",)
    (found,) = issue_programs.find_programs([block("def f():\n    return torch.ones(3)\n")])
    assert found.added == ("import torch", "torch.compile(f)()")
    with pytest.raises(NoProgram):
        issue_programs.find_programs([block("def f(x):\n    return torch.ones(x)\n")])


def test_a_chosen_block_is_the_program() -> None:
    """``chosen`` names a block, also one that does not name the compiler; others are refused."""
    blocks = [
        block(PROGRAM),
        block("import torch\nprint(torch.ones(3))\n", line=9),
        block("$ ls\n"),
    ]
    assert issue_programs.find_programs(blocks, 2)[0].lines == (9,)
    with pytest.raises(NoProgram, match="block 3 is not a Python program"):
        issue_programs.find_programs(blocks, 3)
    with pytest.raises(NoProgram, match="3 code blocks, so there is no block 4"):
        issue_programs.find_programs(blocks, 4)


@pytest.mark.parametrize(
    "text",
    [
        ">>> import torch\n>>> f = torch.compile(lambda x: x + 1)\n>>> f(torch.ones(2))\ntensor([2., 2.])\n",
        "In [1]: import torch\n\nIn [2]: f = torch.compile(lambda x: x + 1)\n\nIn [3]: f(torch.ones(2))\nOut[3]: 1\n",
        ">>> import torch\n>>> def f(x):\n...     return x + 1\n...\n>>> torch.compile(f)(torch.ones(2))\n",
    ],
)
def test_prompts_and_output_are_left_out(text: str) -> None:
    """A session at the prompt of Python or IPython becomes its input."""
    program = issue_programs.find_programs([block(text, "pycon")])[0].text
    assert "tensor(" not in program and "Out[" not in program
    compile(program, "program", "exec")


def test_names_of_inner_scopes_count() -> None:
    """A name that only a function or a comprehension reads is missing too; its own names are not."""
    text = "def f(a):\n    b = [one * scale for one in a]\n    return helper(b)\n\nf(1)\n"
    assert issue_programs.undefined_names(text) == {"scale", "helper"}
    assert issue_programs.undefined_names("from m import *\nf(1)\n") == set()
    assert (
        issue_programs.undefined_names("def f():\n    global g\n    g = 1\nf()\nprint(g)\n")
        == set()
    )


def test_a_printed_graph_gets_its_inputs() -> None:
    """Each annotated argument becomes a tensor of that type, size and stride; a doubt stops it."""
    graph = (
        "class GraphModule(torch.nn.Module):\n"
        '    def forward(self, a: "f32[2, 3]", b: "i64[4][1]cpu", c: "bf16[2, 3][1, 2]cpu"):\n'
        "        return (a + c).sum() + b\n"
    )
    (found,) = issue_programs.find_programs([block(graph)])
    assert found.added[0] == "import torch"
    assert "torch.randn((2, 3), dtype=torch.float32)" in found.text
    assert "torch.randint(0, 2, (4,), dtype=torch.int64)" in found.text
    assert "torch.empty_strided((2, 3), (1, 2), dtype=torch.bfloat16)" in found.text
    for doubtful in ('"f32[s0, 3]"', '"f32[2]" = None', "int"):
        other = f"class M(torch.nn.Module):\n    def forward(self, a: {doubtful}):\n        return self.w(a)\n"
        assert graph_inputs.program_rows(other) == []


def test_the_failure_of_a_report() -> None:
    """Kind, innermost exception, version and machine are read from the words of the form."""
    log = (
        "torch._inductor.exc.InductorError: KeyError: 'buf1'\n\nPyTorch version: 2.14.0+cpu\n"
        "OS: Ubuntu 22.04\n"
    )
    read = read_failure("[inductor] KeyError", "", [block(PROGRAM), block(log, "")], PROGRAM)
    assert (read.kind, read.error, read.message, read.torch) == (
        "exception",
        "KeyError",
        "'buf1'",
        "2.14.0+cpu",
    )
    assert read.machine == ""
    wrapped = (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nTypeError: bad sum\n"
    )
    assert read_failure("it fails", "", [block(wrapped, "")]).error == "TypeError"
    assert read_failure("compiled sum gives wrong results", "", []).kind == "wrong-result"
    assert read_failure("Segfault in cumsum", "sometimes", []).is_flaky
    assert read_failure("x", "OS: macOS 15.1 (arm64)", []).machine == "macOS"
    not_close = "AssertionError: Tensor-likes are not close!\n"
    vague = read_failure("torch.compile crash for resize_as_", "", [])
    assert (vague.kind, is_reported(vague, "crash", "SIGSEGV")) == ("exception", None)
    assert read_failure("acosh", "", [block(not_close, "")]).kind == "wrong-result"
    assert read_failure("x", "only in colab", []).machine == "a notebook"
    named = read_failure('"InternalTorchDynamoError: source code not available" in it', "", [])
    assert (named.kind, named.error) == ("exception", "InternalTorchDynamoError")
    mixed = read_failure("Inconsistent parsing", "", [block(log, "")])
    assert (mixed.kind, mixed.error) == ("exception", "KeyError")
    corrupt = read_failure("torch.compile generates wrong code: corrupted memory", "", [])
    assert corrupt.kind == "crash"
    skipped = read_failure(
        "torch.compile skips a check", "Eager execution correctly raises an `IndexError`.", []
    )
    assert (skipped.kind, skipped.missing_error) == ("wrong-result", "IndexError")
    for title, prose, logs in (
        ("it fails", "Eager raises an IndexError.", []),
        ("compile should not raise TypeError", "In eager this never raises a TypeError.", []),
        ("disable is ignored", "Eager works, Dynamo raises an AttributeError.", []),
        ("it raises no error", "Eager raises no error and Inductor raises ValueError", []),
        ("it skips a check", "Eager raises an IndexError.", [block("KeyError: 'a'\n", "")]),
    ):
        assert not read_failure(title, prose, logs).missing_error, title
    assert read_failure("stack overflow", "", []).kind == ""
    assert read_failure("C++ compile error: invalid output type", "", []).kind == "exception"
    assert read_failure("it fails", "OS: macOS 14.1 (arm64), Jupyter", []).machine == "macOS"


def test_only_the_reported_failure_is_the_reported_one() -> None:
    """The type and the words of the message decide; a text without an error decides nothing."""
    reported = ReportedFailure("exception", "KeyError", "'buf1'")
    assert is_reported(reported, "exception", "KeyError: 'buf#'") is True
    assert is_reported(reported, "exception", "NameError: name 'x' is not defined") is False
    assert is_reported(reported, "crash", "SIGSEGV") is False
    inner = (
        "aten::dropout() Expected a value of type 'float' for argument 'p' but found 'FakeTensor'"
    )
    log = (
        f"torch._dynamo.exc.TorchRuntimeError: Failed running aten.dropout(*(), **{{}}):\n{inner}\n"
    )
    wrapped = read_failure("dropout", "", [block(log, "")])
    assert is_reported(wrapped, "exception", f"RuntimeError: {inner}") is True
    assert is_reported(ReportedFailure("exception"), "exception", "KeyError: 'buf#'") is None
    assert is_reported(ReportedFailure(), "exception", "KeyError: 'buf#'") is None
    broken = ReportedFailure("exception", "Unsupported", "torch.* op returned non-Tensor")
    assert is_reported(broken, "graph-break", "torch.* op returned non-Tensor") is True
    assert is_reported(broken, "graph-break", "Data-dependent branching") is False
    reached = ReportedFailure("exception", "FailOnRecompileLimitHit", "limit reached")
    assert is_reported(reached, "recompile-limit", "guard on x.shape[0]") is True
    a_view = ReportedFailure(
        "exception", "RuntimeError", "Output 0 of CompiledFunctionBackward is a view"
    )
    assert is_reported(
        a_view, "failed-check", "RuntimeError: Output # of CompiledFunction is a view"
    )
    assert is_reported(ReportedFailure("wrong-result"), "failed-check", "ValueError") is True
    assert is_reported(ReportedFailure("hang"), "slow-compile", "") is True
    assert is_reported(ReportedFailure("wrong-result"), "nondeterministic", "") is True


def test_settings_of_torch_are_read_from_commands() -> None:
    """Settings of torch and arguments are used; folders and other variables of the reporter are
    not.
    """
    blocks = [
        block(PROGRAM),
        block(
            "export OMP_NUM_THREADS=1\nexport TOKEN=secret\n"
            "$ TORCHINDUCTOR_CACHE_DIR=/home/me TORCHINDUCTOR_FREEZING=1 python repro.py --size 3\n",
            "bash",
        ),
    ]
    read = read_command(blocks, "Run with `TORCHINDUCTOR_PERMUTE_FUSION=1`.")
    assert read.variables == {
        "TORCHINDUCTOR_FREEZING": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_PERMUTE_FUSION": "1",
    }
    assert (read.arguments, read.launcher) == (("--size", "3"), "")
    assert (
        read_command([block("torchrun --nproc-per-node 2 a.py\n", "")], "").launcher == "torchrun"
    )


OF_COMPILER = "exception: codegen | AssertionError: x @ torch/_inductor/scheduler.py:f"
OF_PROGRAM = "exception: no phase | AssertionError: x @ torch/testing/_comparison.py:assert_close"
NO_ERROR = ReportedFailure("wrong-result", missing_error="IndexError")
RUN = CapturedRun("ok", "", "", "", is_compared=True)
NO_CUDA = CapturedRun(
    "error-in-eager",
    "AssertionError: Torch not compiled with CUDA enabled",
    "error-in-eager: eager | AssertionError: Torch not compiled with CUDA enabled @"
    " torch/cuda/__init__.py:_lazy_init",
    "user",
    is_compared=False,
)


def _raised(what: str, phase: str = "dynamo-trace") -> CapturedRun:
    return CapturedRun("exception", what, f"exception: {phase} | {what}", "torch", False)


@pytest.mark.parametrize(
    ("reported", "run", "answer"),
    [
        (ReportedFailure("exception", "KeyError", "'buf1'"), RUN, answers.PASSES),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            dataclasses.replace(
                RUN, errors=("eager: KeyError 1",), errors_in_eager=("eager: KeyError 2",)
            ),
            answers.CANNOT_TELL,
        ),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            dataclasses.replace(
                RUN,
                errors=("eager: KeyError 1", "compiled: KeyError"),
                errors_in_eager=("eager: KeyError 2",),
            ),
            answers.FAILS,
        ),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            dataclasses.replace(RUN, errors=("compiled: KeyError",)),
            answers.CANNOT_TELL,
        ),
        (
            ReportedFailure("exception", "Unsupported", "Observed exception"),
            CapturedRun(
                "error-in-eager",
                "torch._dynamo.exc.ObservedAttributeError",
                "error-in-eager: eager | torch._dynamo.exc.ObservedAttributeError",
                "user",
                is_compared=False,
                reason="The target fails without torch.compile too: AttributeError: module"
                " 'torch._dynamo' has no attribute 'set_fullgraph'.",
            ),
            answers.CANNOT_TELL,
        ),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            CapturedRun("exception", "KeyError: 'buf#'", "t", "torch", is_compared=False),
            answers.FAILS,
        ),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            CapturedRun("exception", "TypeError: no sum", "t", "torch", is_compared=False),
            answers.DIFFERENT,
        ),
        (
            ReportedFailure("exception"),  # "the assertion fails"
            CapturedRun("wrong-result", "dtype", "t", "torch", is_compared=True),
            answers.FAILS,
        ),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            CapturedRun("wrong-result", "dtype", "t", "torch", is_compared=True),
            answers.DIFFERENT,
        ),
        (
            ReportedFailure("wrong-result"),
            CapturedRun("ok", "", "", "", is_compared=False),
            answers.CANNOT_TELL,
        ),
        (ReportedFailure("wrong-result", machine="macOS"), RUN, answers.CANNOT_TELL),
        (ReportedFailure("recompile-limit"), RUN, answers.PASSES),
        (
            ReportedFailure("recompile-limit"),
            CapturedRun("ok", "", "", "", is_compared=True, recompiles=2),
            answers.DIFFERENT,
        ),
        (
            ReportedFailure("exception"),
            CapturedRun("ok", "", "", "", is_compared=False, lacks_gpu=True),
            answers.CANNOT_TELL,
        ),
        (
            ReportedFailure("exception", "KeyError", "'buf1'"),
            CapturedRun(
                "exception", "ModuleNotFoundError: No module named 'x'", "t", "user", False
            ),
            answers.CANNOT_TELL,
        ),
        (
            ReportedFailure(),
            CapturedRun("exception", "NameError: name 'x' is not defined", "t", "user", False),
            answers.CANNOT_TELL,
        ),
        (
            ReportedFailure(),
            CapturedRun("exception", "KeyError: 'buf#'", "t", "torch", is_compared=False),
            answers.FAILS,
        ),
        (ReportedFailure("hang"), CapturedRun("unknown", "", "", "", False), answers.CANNOT_TELL),
        (NO_ERROR, RUN, answers.CANNOT_TELL),
        (NO_ERROR, _raised("IndexError: 1"), answers.PASSES),
        (NO_ERROR, _raised("RuntimeError: IndexError: 1"), answers.DIFFERENT),
        (NO_ERROR, _raised("IndexError: 1", phase="codegen"), answers.DIFFERENT),
        (NO_ERROR, _raised("AssertionError: IndexError: 1", phase="no phase"), answers.FAILS),
        (
            dataclasses.replace(NO_ERROR, machine="macOS"),
            _raised("IndexError: 1"),
            answers.DIFFERENT,
        ),
        (NO_ERROR, CapturedRun("wrong-result", "", "t", "torch", True), answers.FAILS),
        (NO_ERROR, _raised("KeyError: 1"), answers.DIFFERENT),
        (ReportedFailure("wrong-result"), NO_CUDA, answers.CANNOT_TELL),
        (ReportedFailure(), NO_CUDA, answers.CANNOT_TELL),
        (ReportedFailure("crash"), NO_CUDA, answers.CANNOT_TELL),
        (NO_ERROR, NO_CUDA, answers.CANNOT_TELL),
        (
            ReportedFailure("exception", "AssertionError", "Torch not compiled with CUDA enabled"),
            NO_CUDA,
            answers.FAILS,
        ),
        (
            ReportedFailure("wrong-result"),
            CapturedRun("ok", "", "", "", is_compared=False, asserts=True),
            answers.PASSES,
        ),
        (
            ReportedFailure("wrong-result"),
            CapturedRun("ok", "", "", "", is_compared=False, asserts=True, lacks_gpu=True),
            answers.CANNOT_TELL,
        ),
    ],
)
def test_a_run_is_no_evidence_while_a_condition_is_missing(
    reported: ReportedFailure, run: CapturedRun, answer: str
) -> None:
    """A pass counts only where the failure could have been seen, a failure only if it is the one."""
    assert answers.answer_of_run(reported, run).answer == answer


@pytest.mark.parametrize(
    "text",
    [
        "AA='' " * 3_000 + "x",
        "\n" * 60_000,
        "`AA=" + "x" * 60_000,
        "A" * 60_000,
        "Error: " * 10_000,
        "no error: eager raises " * 3_000,
        "a.Error: b\n" * 6_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    """Hostile texts are read in a time that is proportional to their length."""
    began = time.process_time()
    read_failure(text, text, [block(text, "")])
    read_command([block(text, "")], text)
    short = time.process_time() - began
    began = time.process_time()
    for _ in range(20):
        re.findall("(a|b)", text)
    assert short < 200 * (time.process_time() - began + 0.01)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ndef g(a, a): pass\ntorch.compile(g)\n",
        "import torch\ntorch.compile(" + "+".join(["1"] * 5_000) + ")\n",
        'class M(torch.nn.Module):\n    def forward(self, a: "f32['
        + "9" * 5_000
        + ']"):\n        return a\n',
    ],
)
def test_odd_programs_are_refused_in_words(text: str) -> None:
    with pytest.raises(NoProgram):
        issue_programs.find_programs([block(text)])


def test_operators_of_the_shell_are_no_arguments() -> None:
    read = read_command([block("python a.py --n 3 2>&1 | tee log.txt\n", "sh")], "")
    assert read.arguments == ("--n", "3")


@pytest.mark.parametrize(
    ("reported", "run", "answer"),
    [
        (ReportedFailure(), RUN, answers.CANNOT_TELL),
        (ReportedFailure("slow-compile"), RUN, answers.CANNOT_TELL),
        (
            ReportedFailure("wrong-result"),
            CapturedRun("error-in-eager", "AssertionError: x", "t", "user", is_compared=False),
            answers.FAILS,
        ),
        (
            ReportedFailure("wrong-result"),
            CapturedRun("exception", "AssertionError: x", OF_COMPILER, "torch", is_compared=False),
            answers.DIFFERENT,
        ),
        (
            ReportedFailure("wrong-result"),
            CapturedRun("exception", "AssertionError: x", OF_PROGRAM, "torch", is_compared=False),
            answers.FAILS,
        ),
    ],
)
def test_only_what_could_be_seen_passes(
    reported: ReportedFailure, run: CapturedRun, answer: str
) -> None:
    """A text that names no failure cannot pass. The check of a program is not one of the compiler."""
    assert answers.answer_of_run(reported, run).answer == answer


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ModuleNotFoundError: No module named 'torchvision'", "the package torchvision"),
        ("ImportError: libGL.so: cannot open shared object file", "libGL.so"),
        ("ImportError: cannot import name 'flex' from 'torch.nn.attention'", "that has flex"),
        ("AttributeError: module 'torch' has no attribute 'mtia2'", "that has mtia2"),
        ("AssertionError: Torch not compiled with CUDA enabled", "a device"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "a device"),
        ("RuntimeError: Cannot find a working triton installation.", "a device"),
        ("RuntimeError: No HIP GPUs are available", "a device"),
        ("gaierror: [Errno -#] Temporary failure in name resolution", "the network"),
        ("OSError: We couldn't connect to 'https://huggingface.co'", "the network"),
        ("FileNotFoundError: [Errno #] No such file or directory: 'data.npy'", "a file"),
        ("PermissionError: [Errno #] Permission denied: '/data'", "a right"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: not enough memory", "more memory"),
        ("SIGILL", "an instruction set"),
        ("RuntimeError: mkldnn_bf16_gemm: needs the CPU support avx512bw", "an instruction set"),
        ("RuntimeError: Python #.#+ is not yet supported for torch.compile", "a different version"),
        ("ValueError: environment variable RANK expected, but not set", "the other ranks"),
    ],
)
def test_what_a_machine_lacks_is_no_failure_of_the_report(what: str, words: str) -> None:
    """A device, a package, the network, a file, memory, instructions, a version or other ranks."""
    run = CapturedRun("error-in-eager", what, f"error-in-eager: eager | {what}", "user", False)
    for kind in ("wrong-result", "hang", "crash", "exception", ""):
        given = answers.answer_of_run(ReportedFailure(kind), run)
        assert given.answer == answers.CANNOT_TELL and words in given.why, given


def test_the_missing_file_is_quoted_with_its_numbers() -> None:
    """The signature has none, and a comment that says '#.pickle' quotes what nobody printed."""
    what = "FileNotFoundError: [Errno #] No such file or directory: '#.pickle'"
    reason = "The target fails: [Errno 2] No such file or directory: '0.pickle'."
    run = CapturedRun("error-in-eager", what, "", "user", is_compared=False, reason=reason)
    why = answers.answer_of_run(ReportedFailure("wrong-result"), run).why
    assert why.endswith("FileNotFoundError: [Errno 2] No such file or directory: '0.pickle'")


@pytest.mark.parametrize(
    "what",
    [
        "KeyError: 'buf#'",
        "AssertionError: Tensor-likes are not close!",
        "RuntimeError: expected scalar type Float but found Half",
        "TorchRuntimeError: Dynamo failed to run FX node with fake tensors",
        "SIGSEGV",
        "IndexError: tuple index out of range",
    ],
)
def test_other_failures_lack_nothing(what: str) -> None:
    """They are compared with the report."""
    assert requirements.missing_requirement(what) == ""


@pytest.mark.parametrize(
    ("text", "asserts"),
    [
        ("torch.testing.assert_close(f(x), x)", True),
        ("assert torch.equal(f(x), g(x))", True),
        ("self.assertEqual(f(x), 1)", True),
        ("assert torch.cuda.is_available()\nf(x)", False),
        ("assert torch.__version__ > '2'", False),
        ("print(f(x))", False),
        ("def (", False),
    ],
)
def test_a_program_that_asserts_its_results(text: str, asserts: bool) -> None:
    """If it passes, its results are right, whether they were compared or not."""
    assert issue_programs.asserts_something(text) == asserts
