"""The nodes of a graph on which Inductor worked are found in the frames of its exception."""

import json
from pathlib import Path

import pytest

from tests.support.warm_processes import run_torch_program

PROGRAM = """
import json
import torch
from torch._inductor import lowering, scheduler
from torch._inductor.codegen import cpp
from reprokit.agent.record.nodes_at_work import nodes_at_work

def fail(*_, **__):
    raise KeyError(MESSAGE)

def f(x):
    y = torch.softmax(x, 0)
    z = torch.erfinv(x)
    return y * 2, z @ z

def nodes():
    torch._dynamo.reset()
    try:
        torch.compile(f)(torch.rand(4, 4))
    except Exception as error:
        print(json.dumps(nodes_at_work(error)))

real, MESSAGE = cpp.CppScheduling.codegen_node, "buf2"
cpp.CppScheduling.codegen_node = fail
nodes()
MESSAGE = "elsewhere"
nodes()
cpp.CppScheduling.codegen_node = real
lowering.lowerings[torch.ops.aten.erfinv.default] = fail
nodes()
"""


@pytest.mark.real
def test_the_node_that_was_lowered_or_generated_has_its_line(tmp_path: Path) -> None:
    """A buffer that the message names is preferred to the other operations of its kernel."""
    done = run_torch_program(PROGRAM, cwd=tmp_path)
    generated, elsewhere, lowered = map(json.loads, done.stdout.splitlines())
    lines = [text.strip() for text in PROGRAM.splitlines()]
    softmax, erfinv = (
        f"{tmp_path}/program.py:{lines.index(line) + 1} in f"
        for line in ("y = torch.softmax(x, 0)", "z = torch.erfinv(x)")
    )
    assert lowered == generated == [["erfinv", erfinv]], done.stderr
    assert [*dict(elsewhere)][-1] == "erfinv"
    assert {place for _, place in elsewhere} == {softmax, erfinv}
