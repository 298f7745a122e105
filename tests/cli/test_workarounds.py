"""Workarounds are named after what they leave out, and are offered only after they helped in
a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

RELU = """
import torch, torch._inductor.config

def function(x):
    return torch.relu(x + 1) * 2

def make():
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    return {"model": function, "calls": [((torch.randn(16, 16),), {})], "compile": {"fullgraph": True}}
"""


@pytest.mark.real("it tries each workaround in a run")
def test_a_lowering_is_left_out_as_a_lowering(write: Any, tmp_path: Path) -> None:
    """No pass is named relu; a failure that the workaround itself causes offers no code to copy."""
    target = f"{write('relu.py', RELU)}:make"
    environ = clean_environ(REPROKIT_COMPARE="1")
    done = reprokit("workarounds", target, "--json", "--output-dir", tmp_path / "out", env=environ)
    tried = {row["name"]: row for row in done.json["tried"]}
    assert tried["without the lowering of relu"]["answer"] == "passes", done.json
    assert (
        "make_fallback(torch.ops.aten.relu.default)"
        in tried["without the lowering of relu"]["code"]
    )
    assert not {"without the pass relu", "graph break at relu"} & set(tried)
    assert (
        tried["layer by layer"]["answer"] == ""
        and "no repeated layers" in tried["layer by layer"]["why"]
    )
    assert all(row["answer"] == "passes" or not row["code"] for row in tried.values())
