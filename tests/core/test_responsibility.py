"""A table maps evidence to the responsible party, and the party decides whether an issue may be
filed.
"""

from __future__ import annotations

from typing import Any

import pytest

from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.responsible.responsibility import (
    decide_responsible,
    repository_for,
    why_not_filed,
)
from reprokit.core.records.dumps import Dump, Fault, Frame, Link, Raised, ThreadStack
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import Evidence, HeldLock, ProcessState
from reprokit.core.records.recompiles import GraphBreak, RecompiledFunction
from reprokit.core.records.remarks.cudagraph_skips import CudagraphSkip

V = "/opt/v/lib/python3.11/site-packages/"
POST_GRAD = Frame(V + "torch/_inductor/fx_passes/post_grad.py", "post_grad_passes", 260)
LOWERING = Frame(V + "torch/_inductor/lowering.py", "make_pointwise", 9)
SYMBOLIC = Frame(V + "torch/fx/experimental/symbolic_shapes.py", "evaluate_expr", 4)
BACKEND = Frame(V + "torch/_dynamo/output_graph.py", "OutputGraph._call_user_compiler", 3119)
OBSERVER = Frame(V + "torch/fx/passes/graph_transform_observer.py", "apply_graph_pass", 103)
GENERATED = Frame("/tmp/torchinductor_bob/qa/cqa.py", "Runner.call", 81)
ENTRY = Frame(V + "torch/_dynamo/eval_frame.py", "compile_wrapper", 1183)
DISABLED = Frame(V + "torch/_dynamo/eval_frame.py", "DisableContext.__call__.<locals>._fn", 1446)
ERASE = Frame(V + "torch/fx/graph.py", "Graph.erase_node", 1599)
OP = Frame(V + "torch/_library/custom_ops.py", "backend_impl", 3)
TRITON = Frame(V + "triton/compiler/code_generator.py", "visit_Call", 5)
SYMPY = Frame(V + "sympy/core/expr.py", "__mul__", 5)
VLLM = Frame(V + "vllm/compilation/fusion.py", "FusionPass.__call__", 77)
WAIT = Frame("/usr/lib/python3.11/threading.py", "wait", 320)
MINE = Frame("/home/bob/train.py", "Mine.__call__", 17)
FORWARD = Frame("/home/bob/train.py", "forward", 90)
MAIN = Frame("/home/bob/train.py", "<module>", 200)
CALLER = (FORWARD, ENTRY, MAIN)
AT = "/home/bob/train.py:17"

FRAMES = {
    "a pass raises": ((MINE, OBSERVER, POST_GRAD, *CALLER), AT),
    "a pass calls torch.fx wrongly": ((ERASE, MINE, OBSERVER, POST_GRAD, *CALLER), AT),
    "a pass waits": ((WAIT, MINE, OBSERVER, POST_GRAD, *CALLER), AT),
    "a backend raises": ((MINE, BACKEND, *CALLER), AT),
    "the kernel of a custom operator": ((MINE, DISABLED, OP, GENERATED, *CALLER), AT),
    "a package's pass": ((VLLM, OBSERVER, POST_GRAD, *CALLER), V + "vllm/compilation/fusion.py:77"),
    "Inductor itself": ((LOWERING, *CALLER), ""),
    "a library that Inductor calls": ((SYMPY, LOWERING, *CALLER), ""),
    "a library that a pass calls": ((SYMPY, MINE, OBSERVER, POST_GRAD, *CALLER), AT),
    "Inductor below a backend that calls it": ((LOWERING, MINE, BACKEND, *CALLER), ""),
    "shapes in a pass": ((SYMBOLIC, MINE, OBSERVER, POST_GRAD, *CALLER), ""),
    "a dataclass of Inductor's": ((Frame("<string>", "__init__", 3), LOWERING, *CALLER), ""),
    "a torch that was built here": (
        (
            Frame("/work/pytorch/torch/overrides.py", "f", 3),
            Frame("/work/pytorch/torch/_inductor/ir.py", "g", 3),
            ENTRY,
        ),
        "",
    ),
    "a program beside that torch": (
        (
            Frame("/work/pytorch/try.py", "f", 3),
            Frame("/work/pytorch/torch/_inductor/ir.py", "g", 3),
            ENTRY,
        ),
        "/work/pytorch/try.py:3",
    ),
    "what called compiled code": ((GENERATED, *CALLER), ""),
    "a function that Dynamo left in eager": ((MINE, DISABLED, *CALLER), ""),
    "a program without the compiler": ((MINE, FORWARD, MAIN), ""),
}


@pytest.mark.parametrize("name", FRAMES)
def test_own_code_is_code_that_the_compiler_called(name: str) -> None:
    """The innermost frame that belongs to user code or the compiler decides; the caller of the
    compiler and its libraries do not.
    """
    frames, location = FRAMES[name]
    frame = ownership.called_by_compiler(frames)
    assert (frame.at if frame else "") == location


def raised(*frames: Frame, type: str = "KeyError", message: str = "'x'") -> dict[str, Any]:
    return {"raised": Raised((Link(type, message, frames),)), "exit_status": 1}


def hung(*frames: Frame, **more: Any) -> dict[str, Any]:
    dumps = tuple(
        Dump(n, "py-spy", 7, (ThreadStack(7, "MainThread", frames, True, tid=7),)) for n in (1, 2)
    )
    return {"dumps": dumps, "main_pid": 7, "is_timed_out": True, **more}


PASS = (MINE, OBSERVER, POST_GRAD, *CALLER)
LOCKED = Evidence(processes=(ProcessState(7),), locks=(HeldLock("/tmp/lock", 99),))
FAKE = (
    "expected size 16==16, stride 1==8 at dim=0\nError in op: torch.ops.{}.default\nThis error most"
    " often comes from a fake kernel"
)
ON_FAKE = (
    "Dynamo failed to run FX node with fake tensors: call_function {}(*(FakeTensor(..., size=(16,"
    " 8)),), **{{}}): got ValueError('3-d')"
)


def recompiled(guard: str, where: str) -> dict[str, Any]:
    row = RecompiledFunction("forward", "train.py", 10, 8, (guard,), "self.step += 1", where)
    return {"recompiled": (row,)}


MARKED = """Constraints violated (L['x'].size()[0])! For more information, run with
  - You marked L['x'].size()[0] as dynamic but your code specialized it to be a constant (5). If

User stack:
  File "/my programs/train.py", line 5, in f
    if x.size(0) == 5:
  File "/opt/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
"""
ASKED = "Call to `torch._dynamo.graph_break()`"


IN_EAGER = "may result in an error when running in eager"


def broken(reason: str, where: str, hint: str = "") -> dict[str, Any]:
    return {"breaks": (GraphBreak(reason, where, hints=(hint,)),)}


TABLE: dict[str, tuple[str, str | None, str, dict[str, Any], str, str]] = {
    "own pass raises": ("exception", "fx-passes", "KeyError", raised(*PASS), "user", AT),
    "own pass hangs": ("hang", "fx-passes", "lock-deadlock", hung(*PASS), "user", AT),
    "own pass is slow": ("slow-compile", "fx-passes", "python-loop", hung(*PASS), "user", AT),
    "own operator dies": (
        "crash",
        "kernel-run",
        "SIGSEGV",
        {"faults": (Fault(7, "Segmentation fault", (MINE, OP, GENERATED)),)},
        "user",
        AT,
    ),
    "Inductor raises": (
        "exception",
        "lowering",
        "KeyError",
        raised(LOWERING, *CALLER),
        "torch",
        "",
    ),
    "Inductor hangs": ("hang", "lowering", "python-loop", hung(LOWERING, *CALLER), "torch", ""),
    "compiled code dies": (
        "crash",
        "kernel-run",
        "SIGSEGV",
        {"faults": (Fault(7, "Segmentation fault", (GENERATED, *CALLER)),)},
        "torch",
        "",
    ),
    "only with own passes": (
        "wrong-result",
        "inductor",
        "values",
        {"fails_only_with": "passes", "own_passes": (AT,)},
        "user",
        AT,
    ),
    "only with own backend": (
        "wrong-result",
        None,
        "values",
        {"fails_only_with": "backend", "own_backend": AT},
        "user",
        AT,
    ),
    "eager fails too": (
        "exception",
        "dynamo-trace",
        "AttributeError",
        {"fails_only_with": "nothing", "eager_detail": "it fails in eager too"},
        "unknown",
        "",
    ),
    "own passes do not matter": (
        "wrong-result",
        "inductor",
        "values",
        {"own_passes": (AT,), "fails_only_with": "torch"},
        "torch",
        "",
    ),
    "own passes were not asked": (
        "wrong-result",
        "inductor",
        "values",
        {"own_passes": (AT,)},
        "unknown",
        "",
    ),
    "own backend was not asked": (
        "crash",
        "kernel-run",
        "SIGSEGV",
        {"own_backend": AT},
        "unknown",
        "",
    ),
    "before own passes": (
        "exception",
        "dynamo-trace",
        "KeyError",
        {**raised(BACKEND), "own_passes": (AT,)},
        "torch",
        "",
    ),
    "a fake kernel lies": (
        "exception",
        "kernel-run",
        "AssertionError",
        raised(GENERATED, message=FAKE.format("mylib.twist")),
        "user",
        "mylib::twist",
    ),
    "a fake kernel raises": (
        "exception",
        "dynamo-trace",
        "TorchRuntimeError",
        raised(BACKEND, message=ON_FAKE.format("mylib.twist")),
        "user",
        "mylib::twist",
    ),
    "torch's operator lies": (
        "exception",
        "kernel-run",
        "AssertionError",
        raised(GENERATED, message=FAKE.format("aten.sort")),
        "torch",
        "",
    ),
    "torch's operator raises": (
        "exception",
        "dynamo-trace",
        "TorchRuntimeError",
        raised(BACKEND, message=ON_FAKE.format("aten.sort.default")),
        "torch",
        "",
    ),
    "it departs at a custom operator": (
        "wrong-result",
        "inductor",
        "values",
        {"departure": "the first operator in it is `mylib::twist` at a.py:3"},
        "user",
        "mylib::twist",
    ),
    "a custom operator lies": (
        "wrong-result",
        "inductor",
        "values",
        {
            "departure": (
                "the first operator in it is `mul` at a.py:3; the fake kernel of the custom"
                " operator `mylib::twist` says float32 [2], and its result is int32 [2]"
            )
        },
        "user",
        "mylib::twist",
    ),
    "it departs at torch's operator": (
        "wrong-result",
        "inductor",
        "values",
        {"departure": "the first operator in it is `aten::sin` at a.py:3"},
        "torch",
        "",
    ),
    "ranks differ": ("rank-mismatch", "dynamo-trace", "has no", {}, "user", ""),
    "eager fails": ("error-in-eager", "eager", "ValueError", raised(MINE, MAIN), "user", AT),
    "eager dies in torch": (
        "error-in-eager",
        "eager",
        "SIGFPE",
        {"faults": (Fault(7, "x", (Frame(V + "torch/_ops.py", "f", 1), MAIN)),)},
        "unknown",
        "",
    ),
    "the driver is too old": (
        "exception",
        "kernel-run",
        "RuntimeError",
        raised(GENERATED, message="CUDA driver version is insufficient for CUDA runtime version"),
        "driver",
        "",
    ),
    "the driver is too old for eager": (
        "error-in-eager",
        "eager",
        "RuntimeError",
        raised(MAIN, message="Found no NVIDIA driver on your system"),
        "driver",
        "",
    ),
    "the disk is full": ("unknown", "codegen", "disk-full", {}, "machine", ""),
    "stopped": ("hang", "lowering", "stopped", hung(LOWERING, *CALLER), "machine", ""),
    "a worker is stopped": (
        "hang",
        "worker-wait",
        "compile-worker-stopped",
        hung(LOWERING, *CALLER),
        "machine",
        "",
    ),
    "in the kernel": (
        "hang",
        "cpp-build",
        "uninterruptible",
        hung(LOWERING, *CALLER),
        "machine",
        "",
    ),
    "somebody holds the lock": (
        "hang",
        "cpp-build",
        "file-lock",
        hung(LOWERING, *CALLER, evidence=LOCKED),
        "machine",
        "",
    ),
    "nobody holds the lock": (
        "hang",
        "cpp-build",
        "file-lock",
        hung(LOWERING, *CALLER),
        "torch",
        "",
    ),
    "killed": ("crash", "lowering", "SIGKILL", {"exit_status": -9}, "machine", ""),
    "no memory for data": ("oom", "run", "MemoryError", {}, "machine", ""),
    "no memory for the compiler": ("oom", "lowering", "MemoryError", {}, "torch", ""),
    "the compiler grows": (
        "hang",
        "fx-passes",
        "memory-runaway",
        hung(LOWERING, *CALLER),
        "torch",
        "",
    ),
    "a kernel of Triton's": (
        "exception",
        "ptxas",
        "PTXASError",
        {"kernel": "softmax.py"},
        "triton",
        "",
    ),
    "Triton's compiler": (
        "exception",
        "ttir",
        "CompilationError",
        raised(TRITON, LOWERING, *CALLER),
        "triton",
        "",
    ),
    "own code outside": (
        "hang",
        "eager",
        "lock-deadlock",
        hung(WAIT, FORWARD, MAIN),
        "user",
        "/home/bob/train.py:90",
    ),
    "torch's code outside": (
        "hang",
        "eager",
        "gpu-wait",
        hung(Frame(V + "torch/cuda/__init__.py", "synchronize", 9), MAIN),
        "unknown",
        "",
    ),
    "a graph break": ("graph-break", "dynamo-trace", "x", {}, "torch", ""),
    "a graph break that the program asks for": (
        "graph-break",
        "dynamo-trace",
        ASKED,
        broken(ASKED, "/my programs/train.py:4"),
        "user",
        "/my programs/train.py:4",
    ),
    "a graph break that is fundamental": (
        "graph-break",
        "dynamo-trace",
        "x",
        broken("x", "train.py:4", "This graph break is fundamental - it is unlikely that"),
        "user",
        "train.py:4",
    ),
    "a graph break that needs a setting": (
        "graph-break",
        "dynamo-trace",
        "x",
        broken("x", "train.py:4", "Set `torch._dynamo.config.allow_rnn = True` to"),
        "user",
        "train.py:4",
    ),
    "a graph break in torch": (
        "graph-break",
        "dynamo-trace",
        "x",
        broken(
            "x",
            V + "torch/nn/modules/rnn.py:4",
            "This graph break is fundamental - it is unlikely that",
        ),
        "torch",
        "",
    ),
    "recompiles that the program asks for": (
        "recompile-limit",
        "guards",
        "recompile_limit",
        {"fails_only_with": "dynamic=False"},
        "user",
        "",
    ),
    "a graph break that torch asks for": (
        "graph-break",
        "dynamo-trace",
        ASKED,
        broken(ASKED, V + "torch/optim/optimizer.py:79"),
        "unknown",
        "",
    ),
    "a graph break that may be an error of the program": (
        "graph-break",
        "dynamo-trace",
        "x",
        broken("x", "train.py:4", "Your code may result in an error when running in eager. "),
        "unknown",
        "",
    ),
    "an exception that may be an error of the program": (
        "exception",
        "dynamo-trace",
        "TorchRuntimeError",
        {"raised": Raised((Link("TorchRuntimeError", f"shapes\n  Hint: Your code {IN_EAGER}."),))},
        "unknown",
        "",
    ),
    "an exception that needs torch": (
        "exception",
        "dynamo-trace",
        "TorchRuntimeError",
        {
            "raised": Raised(
                (Link("TorchRuntimeError", f"shapes\n  Hint: Your code {IN_EAGER}."),)
            ),
            "fails_only_with": "torch",
        },
        "torch",
        "",
    ),
    "a size that the program marks and fixes": (
        "exception",
        "guards",
        "ConstraintViolationError",
        {"raised": Raised((Link("ConstraintViolationError", MARKED),))},
        "user",
        "/my programs/train.py:5",
    ),
    "a CUDA graph that writes to an input": (
        "cudagraph-skip",
        "cudagraphs",
        "mutated inputs",
        {"skips": (CudagraphSkip("mutated inputs (1 instances)", "/a b/train.py:4 in f"),)},
        "user",
        "/a b/train.py:4",
    ),
    "a CUDA graph with an operator that torch excludes": (
        "cudagraph-skip",
        "cudagraphs",
        "incompatible ops",
        {"skips": (CudagraphSkip("incompatible ops", "train.py:4 in f"),)},
        "torch",
        "",
    ),
    "a recompile limit": ("recompile-limit", "guards", "recompile_limit", {}, "torch", ""),
    "an attribute that counts steps": (
        "recompile-limit",
        "guards",
        "recompile_limit",
        recompiled("L['self'].step == 3", "train.py:14 in forward"),
        "user",
        "train.py:14",
    ),
    "a value in a folder with a space": (
        "recompile-limit",
        "guards",
        "recompile_limit",
        recompiled("L['self'].step == 3", "/my programs/train.py:14 in forward"),
        "user",
        "/my programs/train.py:14",
    ),
    "a size that changes": (
        "recompile-limit",
        "guards",
        "recompile_limit",
        recompiled("tensor 'x' size mismatch at index 0. expected 3, actual == 4", "a.py:1 in f"),
        "torch",
        "",
    ),
    "a value of torch": (
        "recompile-storm",
        "guards",
        "recompiles",
        recompiled("L['self'].step == 3", "torch/optim/adam.py:14 in step"),
        "torch",
        "",
    ),
    "not judged": ("unknown", None, "deadline", {}, "unknown", ""),
    "nothing failed": ("ok", None, "", {}, "", ""),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_evidence_names_the_party(name: str) -> None:
    """Each party is named with its evidence in sentences; without other evidence, torch is
    responsible for a failed compilation.
    """
    kind, phase, cause, evidence, party, location = TABLE[name]
    responsible = decide_responsible(
        Verdict(kind, phase, cause, "What was seen."), Observation(**evidence)
    )
    assert (responsible.party, responsible.place) == (party, location), responsible
    assert all(text.endswith(".") for text in responsible.because) and bool(
        responsible.because
    ) is bool(party)


def test_a_simulated_gpu_has_no_driver() -> None:
    """An error message of the driver of a simulated GPU is a gap of the simulation."""
    seen = Observation(
        **raised(GENERATED, message="CUDA driver version is insufficient"), simulated=("H100",)
    )
    assert (
        decide_responsible(Verdict("exception", "kernel-run", "RuntimeError", "Seen."), seen).party
        != "driver"
    )


@pytest.mark.parametrize(
    ("kind", "party", "location", "why"),
    [
        ("exception", "torch", "", ""),
        ("exception", "triton", "", ""),
        ("hang", "user", AT, f"the failure is in your own code at {AT}"),
        (
            "hang",
            "user",
            V + "vllm/a.py:3",
            f"the failure is in vllm (third-party package), at {V}vllm/a.py:3",
        ),
        (
            "exception",
            "user",
            "mylib::twist",
            "the failure is in the custom operator mylib::twist, which is not torch's",
        ),
        ("oom", "machine", "", "the machine is responsible, not the compiler"),
        ("exception", "driver", "", "the GPU driver is responsible, not the compiler"),
        ("hang", "unknown", "", "nothing shows who is responsible"),
        ("error-in-eager", "user", AT, "nothing shows that the compiler is at fault"),
        ("ok", "", "", "nothing failed"),
    ],
)
def test_only_failures_of_torch_or_triton_are_filed(
    kind: str, party: str, location: str, why: str
) -> None:
    """A verdict that is not filed has a reason, which names the location."""
    verdict = Verdict(kind, None, None, "Seen.", responsible=party, responsible_place=location)
    assert why_not_filed(verdict) == why
    upstream = {"torch": "pytorch/pytorch", "triton": "triton-lang/triton"}
    assert repository_for(verdict) == ("" if why else upstream[party])


NO_ATTRIBUTE = "AttributeError: 'M' object has no attribute"


@pytest.mark.parametrize(
    ("kind", "cause", "what", "eager", "is_same"),
    [
        (
            "exception",
            "E",
            f"torch.x.InternalError: {NO_ATTRIBUTE} '_a'",
            f"{NO_ATTRIBUTE} '_b'",
            True,
        ),
        ("exception", "KeyError", "KeyError: 'a'", "KeyError: 'b'", False),
        ("exception", "KeyError", "KeyError: 'a'", "ValueError: KeyError", False),
        ("exception", "KeyError", "KeyError: 'a'", "passes", False),
        ("exception", "AssertionError", "AssertionError", "AssertionError: ", True),
        ("exception", "E", "RuntimeError: out of memory", "RuntimeError: no such file", False),
        ("exception", "E", "RuntimeError: got KeyError: 'a'", "KeyError: 'a'", False),
        ("exception", "E", "no `x` in 'a'", "no `x` in 'b'", False),
        ("exception", "KeyError", "KeyError: 'a'", "exit status 1", False),
        ("crash", "SIGSEGV", "SIGSEGV", "killed by SIGSEGV", True),
        ("crash", "SIGSEGV", "SIGSEGV", "killed by SIGABRT", False),
        ("hang", "KeyError", "KeyError: 'a'", "KeyError: 'a'", False),
    ],
)
def test_the_same_error_without_torch_compile(
    kind: str, cause: str, what: str, eager: str, is_same: bool
) -> None:
    verdict = Verdict(kind, "codegen", cause, "why", ())
    assert ownership.fails_in_eager_too(verdict, what, eager) == is_same


def test_a_compiled_check_of_an_index_is_blamed_on_nobody() -> None:
    """Eager may refuse the index as well."""
    verdict = Verdict("crash", "kernel-run", "SIGABRT", "it: index out of bounds: 0 <= tmp2 < 65L")
    assert decide_responsible(verdict, Observation()).party == "unknown"


def test_the_line_that_dynamo_traced_is_that_of_the_user() -> None:
    """A line of a package counts only if there is none of the user's own files."""
    library = MARKED.replace("torch/nn/modules/linear", "einops/einops")
    for message, at in ((library, "/my programs/train.py:5"), ("User stack:\n", "")):
        seen = Observation(raised=Raised((Link("X", "wrapped"), Link("X", message))))
        place = ownership.traced_own(seen)
        assert (place.at if place is not None else "") == at
    only = library.replace("/my programs/train.py", "/x/site-packages/einops/layers.py")
    place = ownership.traced_own(Observation(raised=Raised((Link("X", only),))))
    assert place is not None and place.at.endswith("einops.py:134")
    assert ownership.traced_own(Observation()) is None
