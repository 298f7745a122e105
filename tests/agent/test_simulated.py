"""What a simulated GPU answers without a compile."""

from __future__ import annotations

import types
from typing import Any

import pytest

from reprokit.agent import simulate
from reprokit.agent.record import compile_settings
from reprokit.agent.simulate import cuda, cudagraph_inputs, refuse_driver
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import AgentProblem, SimulationGapMet


def test_a_torch_with_a_moved_symbol_is_not_simulated(
    journaled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the error and the versions that can be simulated."""

    def install(request: object) -> None:
        raise AttributeError("no attribute 'moved'")

    monkeypatch.setattr(simulate, "REQUEST", {"gpu": {}, "cache": ""})
    monkeypatch.setattr(simulate, "problem", "")
    monkeypatch.setattr(simulate, "_install", install)
    simulate.after_torch()
    assert simulate.problem == (
        "this torch cannot simulate a GPU: AttributeError(\"no attribute 'moved'\"); --gpu needs"
        " torch 2.12 to 2.15"
    )
    assert journaled == [AgentProblem(hook="simulate", problem=simulate.problem)]


@pytest.mark.parametrize("has_cuda", [True, False])
def test_a_call_of_the_driver_is_refused(
    has_cuda: bool, journaled: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap is raised and journaled for each class and entry point that needs the driver. What is
    replaced, or only reads a variable of torch, stays.
    """

    class Stream:
        pass

    entry_points = types.ModuleType("torch._C")
    names = ["_cuda_init", "_cuda_sleep", "_cuda_getArchFlags", "_cuda_getDeviceCount"]
    if has_cuda:
        vars(entry_points).update({name: lambda: "called" for name in names})
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(Stream=Stream), _C=entry_points)
    monkeypatch.setattr(refuse_driver, "torch", torch)
    refuse_driver.refuse_entry_points(frozenset({"torch._C._cuda_getDeviceCount"}))
    refused = ["torch.cuda.Stream"]
    with pytest.raises(refuse_driver.SimulationGap, match=r"torch\.cuda\.Stream") as error:
        Stream()
    assert refuse_driver.is_gap(error.value)
    for name in names if has_cuda else ():
        if name in ("_cuda_getArchFlags", "_cuda_getDeviceCount"):
            assert getattr(entry_points, name)() == "called"
            continue
        refused.append(f"torch._C.{name}")
        with pytest.raises(refuse_driver.SimulationGap, match=name):
            getattr(entry_points, name)()
    assert journaled == [SimulationGapMet(symbol=symbol) for symbol in refused]


def test_max_autotune_selects_the_first_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every template is faster than every external kernel, and nothing is compiled in advance."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, ExternKernelCaller

    replaced: dict[str, Any] = {}

    class Replacer(cuda.SymbolReplacer):
        def replace_symbol(self, owner: Any, name: str, value: Any, is_new: bool = False) -> None:
            assert hasattr(owner, name)
            replaced[f"{cuda.owner_name(owner)}.{name}"] = value

    monkeypatch.setattr(compile_settings, "OWN_KEYS", set())
    cuda._replace_autotuning(Replacer())
    extern = ExternKernelCaller.__new__(ExternKernelCaller)
    monkeypatch.setattr(ExternKernelCaller, "__hash__", object.__hash__)
    times = replaced["AlgorithmSelectorCache.benchmark"](None, [extern, "first", "second"])
    assert sorted(times, key=times.__getitem__) == ["first", "second", extern]
    assert replaced["AlgorithmSelectorCache.make_precompile_fn"](None, [])() == {}
    assert replaced["torch._inductor.config.benchmark_fusion"] is False
    assert "benchmark_fusion" in compile_settings.OWN_KEYS
    assert AlgorithmSelectorCache.benchmark is not replaced["AlgorithmSelectorCache.benchmark"]


@pytest.mark.parametrize(
    ("mutated", "disabled", "says"),
    [
        ([1, 2], "", "mutated inputs (2 instances). Found from : \n x.add_(1)"),
        ([0], "", ""),
        ([1], "another reason", ""),
    ],
)
def test_a_cuda_graph_that_changes_an_input_is_logged_as_skipped(
    mutated: list[int], disabled: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the user's line. A change of a static input is allowed, and a graph that is
    skipped for another reason is logged once.
    """
    import torch._inductor.config as config
    from torch._inductor import cudagraph_utils

    logged: list[str] = []
    monkeypatch.setattr(
        cudagraph_utils, "log_cudagraph_skip_and_bump_counter", lambda msg: logged.append(msg)
    )
    lines = [None, None, "x.add_(1)"]
    graph = types.SimpleNamespace(
        cudagraph_info=types.SimpleNamespace(
            placeholders=[cudagraph_utils.PlaceholderInfo("x", None, [], line) for line in lines]
        ),
        fx_kwargs={"static_input_idxs": [0]},
        mutated_input_idxs=mutated,
        disabled_cudagraphs_reason=disabled,
    )
    post_compile = cudagraph_inputs._make_hook(lambda self, *args: args)
    for is_on in (True, False):
        with config.patch({"triton.cudagraphs": is_on}):
            assert post_compile(graph, 1, 2) == (1, 2)
    assert [text.removeprefix("skipping cudagraphs due to ") for text in logged] == [says] * bool(
        says
    )
