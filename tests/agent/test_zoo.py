"""The zoo's parameter counts are those of the built networks."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from reprokit.agent.target import factory
from reprokit.core.shared.zoo import ZOO, needed_bytes


@pytest.mark.parametrize("name", ZOO)
def test_stated_parameters_are_the_built_ones(name: str) -> None:
    """The 41.6 B parameters of llama40b are counted on the built model; fake tensors take no
    memory.
    """
    knobs = {k: v for k, v in ZOO[name].knobs.items() if k != "dtype"}
    with FakeTensorMode():
        factory_result = importlib.import_module(f"reprokit.agent.models.{ZOO[name].source}").make(
            **knobs
        )
        model = factory.read_factory_result(factory_result, name).model
        assert sum(p.numel() for p in model.parameters()) == ZOO[name].parameters  # type: ignore[attr-defined]


def test_llama40b_is_what_its_docstring_says() -> None:
    """48 layers, hidden 8192, about 41.6 B parameters."""
    model = ZOO["llama40b"]
    assert model.knobs["layers"] == 48 and model.knobs["hidden"] == 8192
    assert model.parameters == 41_595_707_392
    source = importlib.import_module("reprokit.agent.models.llama")
    assert "41,595,707,392" in (source.__doc__ or "")
    assert (
        needed_bytes(model, model.knobs, is_train=True)
        > 2 * needed_bytes(model, model.knobs, is_train=False) * 0.8
    )


@pytest.mark.parametrize("name", ["llama-tiny", "convnet", "llama-decode"])
def test_small_models_compute(name: str) -> None:
    """Real weights give real numbers in every call."""
    torch.manual_seed(0)
    knobs = {k: v for k, v in ZOO[name].knobs.items() if k != "dtype"}
    target = factory.read_factory_result(
        importlib.import_module(f"reprokit.agent.models.{ZOO[name].source}").make(**knobs), name
    )
    with torch.no_grad():
        for args, kwargs in target.calls:
            assert torch.isfinite(target.model(*args, **kwargs)).all()
