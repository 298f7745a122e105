"""The settings of a compile become program text with the same settings."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from reprokit.agent.record import compile_settings

LIMIT = 3


def helper(nodes: Any) -> int:
    return len(list(nodes)) + math.floor(LIMIT)


def my_pass(graph: Any) -> None:
    helper(graph.nodes)


class Base:
    pass


class MyPass(Base):
    def __call__(self, graph: Any) -> None:
        helper(graph.nodes)


def describe(function: Any, **options: Any) -> dict[str, Any]:
    """Compile, and return the description that the agent writes at the call of the backend."""
    from torch._dynamo.output_graph import OutputGraph

    settings_found: list[dict[str, Any]] = []
    real = OutputGraph._call_user_compiler

    def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings_found.append(compile_settings.describe_settings(self.compiler_fn))
        return real(self, *args, **kwargs)

    torch._dynamo.reset()
    compile_settings.note_configs()
    OutputGraph._call_user_compiler = hook
    try:
        torch.compile(function, **options)(torch.ones(2))
    finally:
        OutputGraph._call_user_compiler = real
    return settings_found[-1]


def my_backend(gm: Any, inputs: Any) -> Any:
    helper(gm.graph.nodes)
    return gm.forward


def test_a_named_backend_is_its_name() -> None:
    """A registered backend becomes a string, and the default becomes None."""
    assert describe(torch.sin, backend="eager")["backend"] == "'eager'"
    assert describe(torch.sin, backend="aot_eager", dynamic=True)["dynamic"] is True


def test_the_options_of_inductor_are_texts() -> None:
    """Those of the mode are among them, and an option without a text is left out with the reason."""
    options = {"post_grad_custom_post_pass": my_pass, "max_fusion_size": 3}
    wrapper = torch._TorchCompileInductorWrapper("default", options, True)
    wrapper.config["custom_partitioner_fn"] = torch.Generator()
    settings = compile_settings.describe_settings(wrapper)
    assert settings["options"] == {"post_grad_custom_post_pass": "my_pass", "max_fusion_size": "3"}
    assert (settings["backend"], settings["dynamic"]) == (None, True)
    (reason,) = settings["left_out"]
    assert reason == "custom_partitioner_fn: Generator cannot be written as Python text"
    assert "def my_pass(graph):" in "\n".join(settings["sources"])


def test_a_function_is_carried_with_what_it_uses() -> None:
    """A custom backend is carried with its source, its helpers, its constants and its modules."""
    settings = describe(torch.sin, backend=my_backend)
    assert settings["backend"] == "my_backend"
    namespace: dict[str, Any] = {}
    exec("from typing import Any\n" + "\n".join(settings["sources"]), namespace)
    assert namespace["helper"]([1, 2]) == 5 and callable(namespace["my_backend"])


def test_a_setting_without_text_is_left_out_and_reported() -> None:
    """A closure over an object with a state cannot be carried; the description reports this and is
    still valid JSON.
    """
    secret = torch.Generator()

    def closure(gm: Any, inputs: Any) -> Any:
        assert secret
        return gm.forward

    settings = describe(torch.sin, backend=closure)
    assert settings["backend"] is None and "Generator" in settings["left_out"][0]
    json.dumps(settings)


@pytest.mark.parametrize(
    ("value", "text"), [(my_pass, "my_pass"), (MyPass(), "MyPass()"), ([1, "a"], "[1, 'a']")]
)
def test_configuration_that_is_not_the_default_is_noted(value: Any, text: str) -> None:
    """Values, functions and plain objects are noted."""
    import torch._inductor.config as config

    key = (
        "trace.log_url_for_graph_xform" if isinstance(value, list) else "post_grad_custom_post_pass"
    )
    with config.patch({key: value}):
        settings = describe(torch.sin, backend="eager")
    assert ["torch._inductor.config", key, text] in settings["configs"]
    exec("from typing import Any\n" + "\n".join(settings["sources"]), {})
    assert describe(torch.sin, backend="eager")["configs"] == []


def test_grad_mode_and_autocast_are_noted() -> None:
    """Both change the traced graph."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        settings = describe(torch.sin, backend="eager")
    assert settings["grad"] is False and settings["autocast"] == [["cpu", "torch.bfloat16"]]


class Shy:
    def __init__(self) -> None:
        self.held = 1

    def __repr__(self) -> str:
        raise RuntimeError("do not look at me")

    def __call__(self, graph: Any) -> None:
        pass


def test_an_object_without_a_repr_does_not_fail_the_compile() -> None:
    """The user's own pass may raise an error in repr(): it is left out, and the rest is
    described.
    """
    import torch._inductor.config as config

    # an attribute that monkeypatch restores would stay hidden permanently
    with config.patch(post_grad_custom_post_pass=Shy()):
        settings = describe(torch.sin, backend="eager")
        assert "unreadable" in repr(
            compile_settings.config_texts(compile_settings.changed_configs())
        )
    assert "post_grad_custom_post_pass" in " ".join(settings["left_out"])
