"""One bug has one signature: on any machine, at any size, and however it is wrapped or launched."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.stacks.messages import normalise_message, telling_line
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.records.dumps import Dump, Fault, Frame, Link, Raised, ThreadStack
from reprokit.core.records.finding import identity_of_title
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord


def observation_of(root: str, buffer: int, extra_frames: int) -> Observation:
    """Return the same KeyError for two checkouts, models and Pythons."""
    site = f"{root}/lib/python3.11/site-packages/torch"
    inner = Link(
        "KeyError",
        f"'buf{buffer}'",
        (
            Frame(f"{site}/_inductor/loop_body.py", "LoopBody.get_read_expr", 412 + buffer),
            Frame(f"{site}/_inductor/codegen/cpp.py", "CppScheduling.is_all.<locals>.<genexpr>", 5),
            *(Frame(f"{root}/model.py", f"forward{i}", i) for i in range(extra_frames)),
        ),
    )
    outer = Link(
        "torch._inductor.exc.InductorError",
        f"KeyError: 'buf{buffer}'\n\nSet TORCHDYNAMO_VERBOSE=1 for more",
        (),
    )
    return Observation(exit_status=1, raised=Raised((outer, inner)), has_instrumentation=True)


@given(
    st.sampled_from(["/opt/v", "/home/bob/.venv", "/root/x"]),
    st.integers(0, 999),
    st.integers(0, 5),
)
def test_machine_size_and_lines_do_not_matter(root: str, buffer: int, extra: int) -> None:
    """The signature of issue 196570 is always the same, with and without outer frames."""
    seen = observation_of(root, buffer, extra)
    signature = sign_verdict(judge_run(seen), seen)
    assert (
        signature.title
        == "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr"
    )
    assert len(signature.id) == 12
    assert signature.explain


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("KeyError: 'buf1'", "KeyError: 'buf38'"),
        (
            "node arg3_1 has shape torch.Size([2, 3])",
            "node arg17_1 has shape torch.Size([4, 5, 6])",
        ),
        ("cannot open /tmp/a/b12.so", "cannot open /home/bob/x/y.so"),
        ("object at 0x7f00ab", "object at 0xdeadbeef"),
        ("index 5 is out of bounds for size 3", "index 900 is out of bounds for size 12"),
        ("sizes [2, 8] and [8, 3]", "sizes [2, 64] and [64, 3]"),
        ("L_x_ is bad", "L_self_modules_blocks_0_weight_ is bad"),
        (
            "kernel cbyqt2k5m5yqcyh7uwrpi6rdqhqqjxwg7hd2e3vqk5xwq3tmvzxa failed",
            "kernel chrf36zexf6tocxzwaw5axb575c4z7tnyhhpqg2jpqix6fn5rwcg failed",
        ),
        (
            "g++ -O3 x.cpp\nx.cpp:12:3: error: conflicting declaration 'auto tmp1'",
            "g++ -DY z.cpp\nz.cpp:99:8: error: conflicting declaration ‘auto tmp42’",
        ),
        ("same text\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace", "same text"),
    ],
)
def test_messages_of_one_bug(first: str, second: str) -> None:
    """Generated names, shapes, paths, addresses and boilerplate are replaced by placeholders."""
    assert normalise_message(first) == normalise_message(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("expected float16 but found float32", "expected float16 but found int64"),
        ("Value 'sm_101a' is not defined", "Value 'sm_100a' is not defined"),
        ("no attribute 'shape'", "no attribute 'dtype'"),
    ],
)
def test_messages_of_two_bugs(first: str, second: str) -> None:
    """Element types, architectures and names of attributes distinguish bugs."""
    assert normalise_message(first) != normalise_message(second)


def test_compiler_output_becomes_one_line() -> None:
    """The command and 96 kB of C++ errors become the first error."""
    text = (
        "C++ compile error\n\nCommand:\ng++ "
        + "-I/x " * 9000
        + "\n\nOutput:\na.cpp: In function:\na.cpp:7:9: error: 'foo' was not declared\n"
        + "a.cpp:8: error: y\n" * 999
    )
    assert normalise_message(text) == "'foo' was not declared"


def test_a_relay_does_not_name_the_bug() -> None:
    """In a CppCompileError from a CalledProcessError the compiler's message counts, not the exit
    status of its process.
    """
    chain = (
        Link("torch._inductor.exc.CppCompileError", "x.cpp:1: error: bad cast"),
        Link("subprocess.CalledProcessError", "Command '['g++']' returned 1"),
    )
    seen = Observation(exit_status=1, raised=Raised(chain), compile_failures=(Raised(chain),))
    assert sign_verdict(judge_run(seen), seen).title.endswith("CppCompileError: bad cast")


@pytest.mark.parametrize(
    ("message", "searched"),
    [
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  kernel,"
            " /t/hr/chrf36zexf6tocxzwaw5axb575c4z7tnyhhpqg2jpqix6fn5rwcg.main.cpp:50, index out of"
            " bounds: 0 <= tmp10 < 10L\n",
            "std::runtime_error: kernel, <path>:#, index out of bounds: # <= tmp# < #",
        ),
        (
            "terminate called recursively\nterminate called after throwing an instance of"
            " 'std::runtime_error'\n  what():  kernel, x.cpp:50, index out of bounds\n",
            "std::runtime_error",
        ),
        (
            "terminate called after throwing an instance of 'terminate called recursively\n",
            "std::terminate",
        ),
    ],
)
def test_an_abort_in_compiled_code_has_one_signature(message: str, searched: str) -> None:
    """A dump does not change it, and neither does the message, which a second thread may cut."""
    frames = (Frame("/tmp/torchinductor_x/mj/cm.py", "call", 3),)
    titles = set()
    for faults in ((), (Fault(1, "Aborted", frames),)):
        seen = Observation(
            exit_status=-6,
            stderr_tail=message,
            faults=faults,
            has_instrumentation=True,
            open_events=("stage:call-0",),
        )
        titles.add((signature := sign_verdict(judge_run(seen), seen)).title)
        assert signature.parts.message == searched
    if "chrf36z" in message:  # without a dump, only the name of the file shows the phase
        assert titles == {"crash: kernel-run | SIGABRT C++ exception"}
    assert "crash: kernel-run | SIGABRT C++ exception" in titles


def test_a_hang_is_named_by_the_stable_frames_and_by_user_code_inside_the_compiler() -> None:
    """The innermost frames of a library do not matter; the custom pass that does not end does."""
    site = "/v/lib/python3.11/site-packages/"

    def stack(leaf: str) -> tuple[Frame, ...]:
        return (
            Frame(site + "sympy/core/expr.py", leaf),
            Frame("/home/bob/passes.py", "simplify_forever"),
            Frame(site + "torch/_inductor/fx_passes/post_grad.py", "post_grad_passes"),
            Frame(site + "torch/_dynamo/eval_frame.py", "compile_wrapper"),
            Frame("/home/bob/train.py", "<module>"),
        )

    dumps = tuple(
        Dump(i, "py-spy", 5, (ThreadStack(5, "MainThread", stack(leaf), is_main=True),))
        for i, leaf in enumerate("abc")
    )
    seen = Observation(
        is_timed_out=True,
        deadline_s=100,
        quiet_s=80,
        dumps=dumps,
        main_pid=5,
        has_instrumentation=True,
    )
    verdict = judge_run(seen)
    assert verdict.kind == "hang"
    assert (
        sign_verdict(verdict, seen).title == "hang: fx-passes | <user>:passes.simplify_forever <"
        " torch/_inductor/fx_passes/post_grad.py:post_grad_passes"
    )
    early = dataclasses.replace(
        dumps[0], threads=(ThreadStack(5, "MainThread", stack("a")[-1:], is_main=True),)
    )
    late = (early, *(dataclasses.replace(d, number=d.number + 5) for d in dumps))
    assert sign_verdict(verdict, dataclasses.replace(seen, dumps=late)) == sign_verdict(
        verdict, seen
    )


@given(st.text(max_size=500))
def test_any_message_becomes_one_short_line(message: str) -> None:
    """Titles have one line and a limited length."""
    text = normalise_message(message)
    assert len(text) <= 160
    assert "\n" not in text


@pytest.mark.parametrize(
    ("in_model", "alone"),
    [
        ("failed at node erf_4", "failed at node erf"),
        ("expected cond_true_12 in", "expected cond_true in"),
    ],
)
def test_the_number_of_a_node_does_not_matter(in_model: str, alone: str) -> None:
    """FX numbers only the second node of a name, so the smallest program has no number; numbers of
    architectures stay.
    """
    assert normalise_message(in_model) == normalise_message(alone)
    assert normalise_message("sm_90a") != normalise_message("sm_100a")


PTXAS = """PTXAS error: Internal Triton PTX codegen error
`ptxas` stderr:
ptxas-blackwell fatal   : Value 'sm_101a' is not defined for option 'gpu-name'

Repro command: /home/someone/triton/bin/ptxas-blackwell --gpu-name=sm_101a /tmp/tmpqq.ptx
"""
FEATURE = """`ptxas` failed with error code 255
`ptxas` stderr:
ptxas /tmp/tmp1.ptx, line 31; error   : Feature '.bf16' requires .target sm_90 or higher
ptxas fatal   : Ptx assembly aborted due to errors
"""
OF_TRITON = """at 3:44:
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + tl.loa(x), i < n)
                                            ^
AttributeError("module 'triton.language' has no attribute 'loa'")"""


def test_the_message_of_ptxas_and_triton_is_separated_from_its_context() -> None:
    """Recorded from Triton 3.7.1: the command, the source and the summary around the message belong
    to one kernel.
    """
    assert telling_line(PTXAS) == "Value 'sm_101a' is not defined for option 'gpu-name'"
    assert telling_line(FEATURE) == "Feature '.bf16' requires .target sm_90 or higher"
    assert (
        telling_line(OF_TRITON)
        == "AttributeError(\"module 'triton.language' has no attribute 'loa'\")"
    )
    assert "sm_101a" in normalise_message(PTXAS)


ON_FAKE = (
    "Dynamo failed to run FX node with fake tensors: call_{}(*(FakeTensor(..., size=(3, 4)),),"
    " **{{'weights': FakeTensor(..., size=(4,))}}): got RuntimeError('Cannot call numel() on tensor"
    " with symbolic sizes/strides\\nException raised from throw_cannot_call at"
    " /pytorch/c10/core/TensorImpl.cpp:318 (most recent call first):\\nframe #0: c10::Error')"
)


@pytest.mark.parametrize(
    ("node", "place"),
    [
        (
            "function <built-in method cov of type object at 0x7f56effe7a60>",
            "cov with fake tensors",
        ),
        ("function <built-in function add>", "add with fake tensors"),
        ("function <function conv2d at 0x7f56effe7a60>", "conv2d with fake tensors"),
        ("method expand", "expand with fake tensors"),
        ("function aten.matmul.default", "aten.matmul with fake tensors"),
        ("function mylib.picky.default", "fake tensors"),
        ("module L__self___head", "fake tensors"),
    ],
)
def test_an_operator_that_fails_on_fake_tensors_is_named(node: str, place: str) -> None:
    """Operators of torch are, because several raise the same message. The stack of C++ in it
    depends on the build.
    """
    link = Link("torch._dynamo.exc.TorchRuntimeError", ON_FAKE.format(node))
    seen = Observation(exit_status=1, raised=Raised((link,), "uncaught"))
    verdict = judge_run(seen)
    parts = sign_verdict(verdict, seen).parts
    assert parts.place == place
    assert parts.what == "RuntimeError: Cannot call numel() on tensor with symbolic sizes<path>"


HEAP_ERRORS = [
    "free(): invalid pointer",
    "free(): invalid next size (fast)",
    "double free or corruption (!prev)",
    "malloc(): invalid size (unsorted)",
    "malloc_consolidate(): unaligned fastbin chunk detected",
    "corrupted size vs. prev_size while consolidating",
    "invalid fastbin entry (free)",
    "Fatal glibc error: malloc assertion failure in sysmalloc: (old_top == initial_top (av))",
    "python: malloc.c:2617: sysmalloc: Assertion `(old_top == initial_top (av))' failed.",
]


@pytest.mark.parametrize("message", HEAP_ERRORS)
def test_a_damaged_heap_has_one_signature_wherever_it_is_found(message: str) -> None:
    """The call that finds the damage is chance, so its stack says nothing about whose it is."""
    lowering = Frame("/opt/v/lib/python3.11/site-packages/torch/_inductor/lowering.py", "add", 9)
    seen = Observation(
        exit_status=-6,
        is_command=True,
        has_instrumentation=True,
        main_pid=7,
        stderr_tail=f"a line before\n{message}\n",
        faults=(Fault(7, "Aborted", (lowering,)),),
        graphs=(GraphRecord(1, "dynamo", "0/0", 3),),
    )
    verdict = judge_run(seen)
    signed = sign_verdict(verdict, seen)
    assert (verdict.phase, verdict.responsible) == (None, "unknown")
    assert signed.title == "crash: no phase | SIGABRT damaged heap"
    site = CrashSite(
        "generated code", "invalid write", "write of 64 bytes", "cpp_fused", "aten.add"
    )
    known = dataclasses.replace(seen, crash_site=site)
    sited = judge_run(known)
    assert (sited.phase, sited.responsible) == ("kernel-run", "torch")
    wanted = sign_verdict(sited, known)
    assert wanted.parts.site == "invalid write, aten.add"
    assert same_failure.compare_failures(wanted, verdict, signed) == same_failure.SAME


def test_a_heap_that_was_damaged_before_anything_was_compiled_is_no_crash_of_torch() -> None:
    """An extension of the program may have done it."""
    fault = Fault(7, "Aborted", (Frame("/home/bob/train.py", "load", 3),))
    seen = Observation(
        exit_status=-6,
        is_command=True,
        has_instrumentation=True,
        main_pid=7,
        stderr_tail="double free or corruption (out)\n",
        faults=(fault,),
    )
    assert judge_run(seen).kind == "error-in-eager"


@pytest.mark.parametrize(
    "title",
    [
        "ok: no phase",
        "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr",
        "exception: aot | ValueError: bad @ fake tensors",
        "crash: kernel-run | SIGSEGV in <generated>:call",
        "crash: kernel-run | SIGABRT std::runtime_error: index in the kernel",
        "hang: fx-passes | <user>:forever < torch/_inductor/fx_passes/post_grad.py:post_grad_passes",
        "hang: dynamo-trace | unrolled loop",
        "wrong-result: no phase | numbers @ acosh",
        "superlinear-compile: codegen | exponential @ torch/_inductor/codegen/cpp.py:codegen",
        "cudagraph-skip: cudagraphs | mutated inputs",
    ],
)
def test_the_parts_of_a_title_give_the_same_title(title: str) -> None:
    """A pack or a ledger without parts gives the same signature as one with parts."""
    assert identity_of_title(title).title == title


@given(st.text(max_size=80))
def test_any_title_has_stable_parts(title: str) -> None:
    """Any title of a foreign pack is accepted, and its parts are stable."""
    parts = identity_of_title(title)
    assert identity_of_title(parts.title).title == parts.title


def test_the_order_of_a_set_in_a_message_does_not_matter() -> None:
    """Pending unbacked symbols are a set; the entries of a dict keep their order."""
    first = normalise_message("Pending unbacked symbols {u1, u0} not in returned outputs")
    assert first == normalise_message("Pending unbacked symbols {u0, u1} not in returned outputs")
    assert normalise_message("{b: x, a: y}") == "{b: x, a: y}"


def test_an_abort_that_names_a_generated_file_is_in_compiled_code() -> None:
    """The thread that aborts has no Python frame, and the main thread is in the user's code."""
    message = (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  kernel,"
        " /t/4g/c4gvhfmchbfyz7nfoourwu3em5dhfdqr5b5peypggrgpvp6smklh.main.cpp:36, index out of"
        " bounds: 0 <= tmp2 < 65L"
    )
    seen = Observation(
        exit_status=-6,
        stderr_tail=message,
        faults=(Fault(1, "Aborted", (Frame("/home/bob/train.py", "step", 3),)),),
        has_instrumentation=True,
        is_command=True,
    )
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.phase) == ("crash", "kernel-run")
    assert "index out of bounds: 0 <= tmp2 < 65L" in verdict.reason
