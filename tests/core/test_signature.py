"""Same bug, same signature: on any machine, at any size, however it was wrapped or launched."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.judge.signature import sign
from reprokit.core.judge.stacks.messages import normalise_message, telling_line
from reprokit.core.judge.verdict import judge
from reprokit.core.records.dumps import Dump, Fault, Frame, Link, Raised, ThreadStack
from reprokit.core.records.observation import Observation


def observed(root: str, buffer: int, extra_frames: int) -> Observation:
    """The same KeyError in two checkouts, models and Pythons."""
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
    """The signature of issue 196570 is one, buried or not."""
    seen = observed(root, buffer, extra)
    signature = sign(judge(seen), seen)
    assert (
        signature.title
        == "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr"
    )
    assert len(signature.id) == 12
    assert signature.explain


@pytest.mark.parametrize(
    ("one", "two"),
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
def test_messages_of_one_bug(one: str, two: str) -> None:
    """Generated names, shapes, paths, addresses and boilerplate are blanked."""
    assert normalise_message(one) == normalise_message(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("expected float16 but found float32", "expected float16 but found int64"),
        ("Value 'sm_101a' is not defined", "Value 'sm_100a' is not defined"),
        ("no attribute 'shape'", "no attribute 'dtype'"),
    ],
)
def test_messages_of_two_bugs(one: str, two: str) -> None:
    """Element types, architectures and names of attributes tell bugs apart."""
    assert normalise_message(one) != normalise_message(two)


def test_compiler_output_becomes_one_line() -> None:
    """96 kB of C++ errors, the command first."""
    text = (
        "C++ compile error\n\nCommand:\ng++ "
        + "-I/x " * 9000
        + "\n\nOutput:\na.cpp: In function:\na.cpp:7:9: error: 'foo' was not declared\n"
        + "a.cpp:8: error: y\n" * 999
    )
    assert normalise_message(text) == "'foo' was not declared"


def test_a_relay_does_not_name_the_bug() -> None:
    """CppCompileError from CalledProcessError: the compiler's words count, not the exit status of
    its process.
    """
    chain = (
        Link("torch._inductor.exc.CppCompileError", "x.cpp:1: error: bad cast"),
        Link("subprocess.CalledProcessError", "Command '['g++']' returned 1"),
    )
    seen = Observation(exit_status=1, raised=Raised(chain), compile_failures=(Raised(chain),))
    assert sign(judge(seen), seen).title.endswith("CppCompileError: bad cast")


def test_a_crash_that_said_something_and_one_that_did_not() -> None:
    """With or without a dump, an abort that names its reason is one bug."""
    said = (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  kernel,"
        " /t/hr/chrf36zexf6tocxzwaw5axb575c4z7tnyhhpqg2jpqix6fn5rwcg.main.cpp:50, index out of"
        " bounds: 0 <= tmp10 < 10L\n"
    )
    frames = (Frame("/tmp/torchinductor_x/mj/cm.py", "call", 3),)
    titles = set()
    for faults in ((), (Fault(1, "Aborted", frames),)):
        seen = Observation(
            exit_status=-6,
            stderr_tail=said,
            faults=faults,
            has_instrumentation=True,
            open_events=("stage:call-0",),
        )
        titles.add(sign(judge(seen), seen).title)
    assert titles == {
        "crash: kernel-run | SIGABRT std::runtime_error: kernel, <path>:#, index out of bounds: #"
        " <= tmp# < #"
    }


def test_a_hang_is_named_by_what_stays_and_by_user_code_inside_the_compiler() -> None:
    """Leaves that spin in a library do not matter; the custom pass that spins does."""
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
    verdict = judge(seen)
    assert verdict.kind == "hang"
    assert (
        sign(verdict, seen).title == "hang: fx-passes | <user>:simplify_forever <"
        " torch/_inductor/fx_passes/post_grad.py:post_grad_passes"
    )
    early = dataclasses.replace(
        dumps[0], threads=(ThreadStack(5, "MainThread", stack("a")[-1:], is_main=True),)
    )
    late = (early, *(dataclasses.replace(d, number=d.number + 5) for d in dumps))
    assert sign(verdict, dataclasses.replace(seen, dumps=late)) == sign(verdict, seen)


@given(st.text(max_size=500))
def test_any_message_becomes_one_short_line(message: str) -> None:
    """Titles never break a line or grow without end."""
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
    """FX numbers the second node of a name, so the smallest program has none; architectures keep
    theirs.
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


def test_what_ptxas_and_triton_say_is_told_from_what_they_show() -> None:
    """Recorded of Triton 3.7.1: the command, the source and the summary around it belong to one
    kernel.
    """
    assert telling_line(PTXAS) == "Value 'sm_101a' is not defined for option 'gpu-name'"
    assert telling_line(FEATURE) == "Feature '.bf16' requires .target sm_90 or higher"
    assert (
        telling_line(OF_TRITON)
        == "AttributeError(\"module 'triton.language' has no attribute 'loa'\")"
    )
    assert "sm_101a" in normalise_message(PTXAS)
