"""What a compile was asked with becomes text that asks for it again."""

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


def described(function: Any, **options: Any) -> dict[str, Any]:
    """Compile and give what is described where the agent does it: at the call of the backend."""
    from torch._dynamo.output_graph import OutputGraph

    found: list[dict[str, Any]] = []
    real = OutputGraph._call_user_compiler

    def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(compile_settings.describe_settings(self.compiler_fn))
        return real(self, *args, **kwargs)

    torch._dynamo.reset()
    compile_settings.note_configs()
    OutputGraph._call_user_compiler = hook
    try:
        torch.compile(function, **options)(torch.ones(2))
    finally:
        OutputGraph._call_user_compiler = real
    return found[-1]


def my_backend(gm: Any, inputs: Any) -> Any:
    helper(gm.graph.nodes)
    return gm.forward


def test_a_named_backend_is_its_name() -> None:
    """A registered backend is a string, the default is None."""
    assert described(torch.sin, backend="eager")["backend"] == "'eager'"
    assert described(torch.sin, backend="aot_eager", dynamic=True)["dynamic"] is True


def test_a_function_is_carried_with_what_it_uses() -> None:
    """A custom backend: its source, its helpers, its constants, its modules."""
    found = described(torch.sin, backend=my_backend)
    assert found["backend"] == "my_backend"
    made: dict[str, Any] = {}
    exec("from typing import Any\n" + "\n".join(found["sources"]), made)
    assert made["helper"]([1, 2]) == 5 and callable(made["my_backend"])


def test_what_has_no_text_is_left_out_and_told() -> None:
    """A closure cannot be carried; the description says so and is still JSON."""
    secret = 3

    def closure(gm: Any, inputs: Any) -> Any:
        assert secret
        return gm.forward

    found = described(torch.sin, backend=closure)
    assert found["backend"] is None and "closure" in found["left_out"][0]
    json.dumps(found)


@pytest.mark.parametrize(
    ("value", "text"), [(my_pass, "my_pass"), (MyPass(), "MyPass()"), ([1, "a"], "[1, 'a']")]
)
def test_configuration_that_is_not_the_default_is_noted(value: Any, text: str) -> None:
    """Values, functions and plain objects."""
    import torch._inductor.config as config

    key = (
        "trace.log_url_for_graph_xform" if isinstance(value, list) else "post_grad_custom_post_pass"
    )
    with config.patch({key: value}):
        found = described(torch.sin, backend="eager")
    assert ["torch._inductor.config", key, text] in found["configs"]
    exec("from typing import Any\n" + "\n".join(found["sources"]), {})
    assert described(torch.sin, backend="eager")["configs"] == []


def test_grad_mode_and_autocast_are_noted() -> None:
    """They change what is traced."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = described(torch.sin, backend="eager")
    assert found["grad"] is False and found["autocast"] == [["cpu", "torch.bfloat16"]]


class Shy:
    def __init__(self) -> None:
        self.held = 1

    def __repr__(self) -> str:
        raise RuntimeError("do not look at me")

    def __call__(self, graph: Any) -> None:
        pass


def test_an_object_that_cannot_be_looked_at_never_fails_the_compile() -> None:
    """The user's own pass may raise when it is shown: it is left out, and the rest is described."""
    import torch._inductor.config as config

    with config.patch(
        post_grad_custom_post_pass=Shy()
    ):  # what monkeypatch puts back stays hidden for good
        found = described(torch.sin, backend="eager")
        assert "unreadable" in repr(compile_settings.as_text(compile_settings.changed_configs()))
    assert "post_grad_custom_post_pass" in " ".join(found["left_out"])
