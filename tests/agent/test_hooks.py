"""What the hooks in Python and torch record, and where they end a compile."""

from __future__ import annotations

import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _traceback as torchs_traceback

from reprokit.agent.record import exceptions, graph_recorder, process_start
from reprokit.agent.torch_hooks import cudagraph_hooks, recompile_hooks, stop_after_phase
from reprokit.core.records.recompiles import graph_breaks
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import CudagraphSkipped, GraphBreakFound, WarningShown

FILE = "/env/torch/_inductor/lowering.py"


class Shy(UserWarning):
    """Python converts it to text once, and the agent cannot."""

    texts = 0

    def __str__(self) -> str:
        self.texts += 1
        if self.texts > 1:
            raise RuntimeError("do not look at me")
        return "shy"


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes Python show a warning of a file, while warnings are journaled."""
    monkeypatch.setattr(warnings.WarningMessage, "__init__", warnings.WarningMessage.__init__)
    process_start._journal_warnings()

    def warn(message: Any, file: str = FILE, source: object = None) -> None:
        warnings.warn_explicit(message, UserWarning, file, 7, source=source)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield warn


def test_warnings_of_the_compiler_are_journaled(journaled: list[Event], warned: Any) -> None:
    """The program sees them all. A warning of the program or of another part of torch, and one that
    cannot be converted to text, are not journaled.
    """
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warned("x" * 5000)
        warned("about an object", source=warned)
        warned(Shy())
        warned("of the program", file="/home/bob/torch/train.py")
        warned("of an optimizer", file="/env/torch/optim/lr_scheduler.py")
    first, second = journaled
    assert isinstance(first, WarningShown) and isinstance(second, WarningShown)
    assert (first.category, first.file, first.line) == ("UserWarning", FILE, 7)
    assert first.message.startswith("x" * 4000) and len(first.message) < 4100
    assert second.message == "about an object"
    assert len(shown) == 5 and shown[1].source is warned


def test_a_warning_that_is_only_formatted_is_not_journaled(
    journaled: list[Event], warned: Any
) -> None:
    """A program that replaces ``showwarning`` formats a warning that is journaled already."""
    assert "only a text" in warnings.formatwarning("only a text", UserWarning, FILE, 7)
    with warnings.catch_warnings(record=True):
        warnings.showwarning("only a text", UserWarning, FILE, 7)
    assert not journaled


def test_a_warning_that_torch_hides_is_not_journaled(
    journaled: list[Event], warned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dynamo reads ``.grad`` of each tensor, and hides the warning about it. Others are shown."""
    with torch._logging.hide_warnings(torch._logging._internal.safe_grad_filter):
        warned("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed")
        warned("about something else")
    assert [event.message for event in journaled if isinstance(event, WarningShown)] == [
        "about something else"
    ]
    assert "leaf Tensor" not in capsys.readouterr().err


def test_a_process_journals_only_its_first_warnings(
    journaled: list[Event], monkeypatch: pytest.MonkeyPatch, warned: Any
) -> None:
    """A program that shows a warning in each step does not fill the disk."""
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for n in range(process_start.MAX_WARNINGS + 5):
            warned(f"step {n}")
    assert len(journaled) == process_start.MAX_WARNINGS


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_skipped_cuda_graph_is_journaled_where_there_is_a_gpu(
    has_gpu: bool, journaled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each module of Inductor that has the function logs as before."""
    from torch._inductor import compile_fx, cudagraph_utils, output_code

    logged: list[str] = []

    def log_cudagraph_skip_and_bump_counter(msg: str) -> None:
        logged.append(msg)

    name = log_cudagraph_skip_and_bump_counter.__name__
    modules: list[Any] = [cudagraph_utils, output_code, compile_fx]
    for module in modules:
        monkeypatch.setattr(module, name, log_cudagraph_skip_and_bump_counter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    cudagraph_hooks.watch_cudagraph_skips()
    for module in modules:
        getattr(module, name)(f"skipping in {module.__name__}")
    assert logged == [f"skipping in {module.__name__}" for module in modules]
    assert journaled == [CudagraphSkipped(message=text) for text in logged if has_gpu]


class Stopped(Exception):
    """The probe ends here."""


@pytest.mark.parametrize(
    ("phase", "owner", "runs"),
    [
        ("scheduler", "Scheduler", False),
        ("codegen", "PyCodeCache", False),
        ("codegen", "AotCodeCompiler", False),
        ("cpp-build", "PyCodeCache", True),
        ("worker-wait", "AotCodeCompiler", True),
        ("an unknown phase", "PyCodeCache", None),
    ],
)
def test_a_probe_ends_when_its_graph_has_left_the_phase(
    phase: str, owner: str, runs: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phase up to code generation ends before the function of the next one runs, and a build
    after its own. A graph of the other direction is not stopped.
    """
    from torch._inductor import codecache, compile_fx, scheduler
    from torch._inductor.virtualized import V

    assert compile_fx  # without it no phase of Inductor has an effect
    ran: list[str] = []
    owners: dict[str, Any] = {
        "Scheduler": scheduler.Scheduler,
        "PyCodeCache": codecache.PyCodeCache,
        "AotCodeCompiler": codecache.AotCodeCompiler,
    }
    methods = {"Scheduler": "codegen", "PyCodeCache": "load_by_key_path"}
    for key, value in owners.items():
        name = methods.get(key, "compile")
        stub = classmethod(lambda cls: ran.append(cls.__name__))
        monkeypatch.setattr(value, name, stub)

    def stop() -> None:
        raise Stopped

    stop_after_phase.stop_after(phase, is_backward=False, stop=stop)
    call = getattr(owners[owner], methods.get(owner, "compile"))
    with V.set_graph_handler(types.SimpleNamespace(is_backward=True)):  # type: ignore[arg-type]
        call()
    assert ran == [owner]
    with V.set_graph_handler(types.SimpleNamespace(is_backward=False)):  # type: ignore[arg-type]
        if runs is None:
            call()
        else:
            with pytest.raises(Stopped):
                call()
    assert len(ran) == (1 if runs is False else 2)


BESIDE_TORCH = Path(torch.__file__).parents[1]


@pytest.mark.parametrize(
    "file",
    [
        "/tmp/w/storm.py",
        "/tmp/w/mp/w/storm.py",
        f"{BESIDE_TORCH.parent}/my net/src/state.py",
        f"{BESIDE_TORCH}/nets/a.py",
        "storm.py",
    ],
)
def test_a_path_that_dynamo_cuts_is_whole_in_the_journal(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo removes what the path has in common with the path of torch, but not in the journal."""
    codes = [compile("", name, "exec") for name in (file, "/tmp/x/w/storm.py", sys.executable)]
    monkeypatch.setattr(graph_recorder, "traced_code", set(codes))
    frame = traceback.FrameSummary(file, 6, "forward", line="self.n += 1  # the count")
    place = torchs_traceback.format_frame(frame, line=True)
    reason = f"0/1: self.n == 3  # {place} (HINT: use a tensor)"
    whole = recompile_hooks._with_whole_path(reason)
    assert whole.endswith(f"# self.n += 1  # the count  # {file}:6 in forward (HINT: use a tensor)")


def test_a_path_of_torch_stays_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of an environment shows nothing."""
    code = compile("", f"{BESIDE_TORCH}/torch/optim/adam.py", "exec")
    monkeypatch.setattr(graph_recorder, "traced_code", {code})
    assert graph_recorder.whole_path("torch/optim/adam.py") == "torch/optim/adam.py"


def test_the_hints_of_a_long_message_are_journaled(journaled: list[Event]) -> None:
    """Torch 2.13 explains how the tensor of a branch was computed before it hints."""
    hint = "  Hint: This graph break is fundamental"
    message = "\n".join(["Data-dependent branching", *["    of a graph input"] * 900, hint])
    recompile_hooks.note_break(RuntimeError(message))
    (event,) = journaled
    assert isinstance(event, GraphBreakFound)
    assert graph_breaks([event])[0].hints == ("This graph break is fundamental",)


@pytest.mark.parametrize("is_own", [False, True])
def test_a_printed_traceback_has_no_frame_of_a_hook(is_own: bool) -> None:
    """Those of the cause have none either. An error of the agent itself keeps its frames."""
    hook = compile("def hook(real):\n    real()\n", exceptions.__file__, "exec")
    names: dict[str, Any] = {}
    exec(hook, names)

    def fail() -> None:
        raise ValueError("program")

    def fail_with_cause() -> None:
        try:
            names["hook"](fail)
        except ValueError as cause:
            raise RuntimeError("wrapped") from cause

    with pytest.raises((RuntimeError, TypeError)) as caught:
        names["hook"](None if is_own else fail_with_cause)
    exceptions.hide_agent(caught.value)
    text = "".join(traceback.format_exception(caught.value))
    assert ("in hook" in text) is is_own
    assert is_own or ("in fail_with_cause" in text and "in fail\n" in text)
