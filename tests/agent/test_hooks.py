"""What the hooks in Python and torch record, and where they end a compile."""

from __future__ import annotations

import types
import warnings
from typing import Any

import pytest
import torch

from reprokit.agent.record import process_start
from reprokit.agent.torch_hooks import cudagraph_hooks, stop_after_phase
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import CudagraphSkipped, WarningShown


class Shy(UserWarning):
    """Python converts it to text once, and the agent cannot."""

    texts = 0

    def __str__(self) -> str:
        self.texts += 1
        if self.texts > 1:
            raise RuntimeError("do not look at me")
        return "shy"


def test_a_warning_about_an_object_is_journaled(
    journaled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program sees the same warning. One that cannot be converted to text, and one that is only
    formatted, are not journaled.
    """
    monkeypatch.setattr(warnings.WarningMessage, "__init__", warnings.WarningMessage.__init__)
    process_start._journal_warnings()
    source = object()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warnings.warn("x" * 5000, ResourceWarning, stacklevel=1, source=source)
        warnings.warn(Shy(), stacklevel=1, source=source)
        warnings.formatwarning("only a text", UserWarning, "file.py", 1)
    (event,) = journaled
    assert isinstance(event, WarningShown)
    assert (event.category, event.file) == ("ResourceWarning", __file__)
    assert event.message.startswith("x" * 4000) and len(event.message) < 4100
    assert [w.category for w in shown] == [ResourceWarning, Shy] and shown[0].source is source
    assert event.line == shown[0].lineno


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
