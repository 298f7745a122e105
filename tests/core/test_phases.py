"""The phase of a failure follows from its frames, also for wrappers that several phases call."""

from __future__ import annotations

import pytest

from reprokit.core.judge.stacks import phases
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import identity_of_title
from reprokit.core.triage.known_failures import KnownFailure
from reprokit.host.catalogue import catalogue_files

AOT = "torch/_functorch/_aot_autograd"
BACKWARD = (
    (f"{AOT}/runtime_wrappers.py", "backward"),
    ("torch/autograd/function.py", "apply_boxed"),
)


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        # a compiled backward: a check in its prologue, also in text that torch writes since 2.13
        (((f"{AOT}/runtime_wrappers.py", "_raise_if_functorch_active"), *BACKWARD), "kernel-run"),
        (((f"{AOT}/runtime_wrappers.py", "_backward_impl"), *BACKWARD), "kernel-run"),
        (
            ((f"{AOT}/subclass_codegen.py:codegen(x)", "_compiled_backward"), *BACKWARD),
            "kernel-run",
        ),
        (((f"{AOT}/codegen.py:codegen(backward_prologue)", "_f"), *BACKWARD), "kernel-run"),
        (((f"{AOT}/utils.py", "call_func_at_runtime_with_args"), *BACKWARD), "kernel-run"),
        # a backward that is compiled when it first runs
        (((f"{AOT}/runtime_wrappers.py", "get_or_compile"), *BACKWARD), "aot"),
        (((f"{AOT}/utils.py", "strict_zip"), (f"{AOT}/graph_compile.py", "aot_stage2")), "aot"),
        (((f"{AOT}/runtime_wrappers.py", "merge_view_inputs"), (f"{AOT}/x.py", "f")), "aot"),
        # utilities of torch.export, which other parts of the compiler call
        (
            (
                ("torch/_export/utils.py", "wrapper"),
                ("torch/_dynamo/variables/higher_order_ops.py", "call_function"),
            ),
            "dynamo-trace",
        ),
        ((("torch/_export/utils.py", "f"), ("torch/export/_trace.py", "_export")), "export"),
    ],
)
def test_the_caller_of_a_wrapper_decides(frames: tuple[tuple[str, str], ...], phase: str) -> None:
    found = phases.phase_of_frames(Frame(file, name) for file, name in frames)
    assert found is not None and found[0] == phase


@pytest.mark.parametrize(
    "entry", catalogue_files.own_catalogue(), ids=lambda entry: entry.issue.partition("#")[2]
)
def test_the_frames_of_an_entry_give_the_phase_of_its_title(entry: KnownFailure) -> None:
    """The phase was found by running it; an entry has only the innermost frames."""
    for run in entry.failing if entry.kind == "exception" else ():
        frames = [Frame(*frame.rsplit(":", 1)) for frame in run.frames]
        found = phases.phase_of_frames(frames)
        assert found is None or found[0] == identity_of_title(run.title).phase, run.torch
