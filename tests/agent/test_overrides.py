"""The settings of an ablation step replace those of the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch._inductor.config as config

from reprokit.agent.experiments import overrides


def test_settings_of_a_module_and_of_a_section_are_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the settings of the named package are changed."""
    configs = {
        "torch._inductor.config.max_fusion_size": 7,
        "torch._inductor.config.cpp.threads": 3,
        "torch._inductor.config.triton.unique_kernel_names": False,
    }
    before = {"max_fusion_size": 64, "cpp.threads": -1, "triton.unique_kernel_names": True}
    monkeypatch.setattr(overrides, "OVERRIDES", {"configs": configs})
    with config.patch(before):
        overrides.change_settings("torch._dynamo")
        assert (config.max_fusion_size, config.cpp.threads) == (64, -1)
        overrides.change_settings("torch._inductor")
        assert (config.max_fusion_size, config.cpp.threads) == (7, 3)
        assert config.triton.unique_kernel_names is False


@pytest.mark.parametrize("without_passes", [True, False])
def test_the_programs_own_passes_are_cleared_before_a_compile(
    without_passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other settings of the program stay."""

    def my_pass(graph: Any) -> None:
        pass

    monkeypatch.setattr(overrides, "OVERRIDES", {"without_passes": without_passes})
    with config.patch(post_grad_custom_post_pass=my_pass, max_fusion_size=7):
        overrides.before_compile()
        found = config.post_grad_custom_post_pass
        assert found is None if without_passes else found is my_pass
        assert config.max_fusion_size == 7
    assert config.post_grad_custom_post_pass is None
