"""The outcomes of programs of a hunt, with bugs that a test puts into the compiler."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.warm_processes import run_torch_program

PROGRAM = """
import json
import operator
import os

import torch
from torch._dynamo.output_graph import OutputGraph

from reprokit.agent.hunt import judge_programs, option_pairs

FACTORY = '''
import torch
def function(x):
    return {result}
def make():
    x = torch.arange(1.0, 2000.0) / 300
    return {{"model": function, "calls": [((x,), {{}})], "compile": {compile}, "train": False}}
'''
SCRIPT = '''
import torch
torch._dynamo.config.recompile_limit = 3
torch.set_default_dtype(torch.float64)
def f(x):
    return torch.abs(x) {sign} 3
expected = f(torch.ones(2))
got = torch.compile(f, backend="eager")(torch.ones(2))
assert torch.equal(got, expected)
'''
CHECKED = '''
import torch
class Seen:
    count = 0
def f(x):
    if torch.compiler.is_compiling():
        Seen.count = 1
    return x - 3
torch.compile(f, backend="eager")(torch.ones(2))
assert Seen.count == 0
'''
real = OutputGraph.call_user_compiler


def other_exp(x):
    return torch.exp(x.double() * (1 + 1e-7)).float()


def call_user_compiler(self, graph, *inputs):
    for node in graph.graph.nodes:
        if node.target is torch.exp:  # another library rounds in another way
            node.target = other_exp
        if node.target is operator.mul:
            node.target = operator.add
        if node.target is torch.sinh:
            raise RuntimeError("this is not yet supported")
    graph.recompile()
    return real(self, graph, *inputs)


OutputGraph.call_user_compiler = call_user_compiler
EAGER = '{"backend": "eager"}'
programs = {
    "rounding": FACTORY.format(result="torch.floor(torch.exp(x) / 0.001)", compile=EAGER),
    "wrong": FACTORY.format(result="x * 5", compile=EAGER),
    "refused": FACTORY.format(result="torch.sinh(x)", compile=EAGER),
    "healthy": FACTORY.format(result="x - 1", compile=EAGER),
    "script": SCRIPT.format(sign="*"),
    "healthy script": SCRIPT.format(sign="-"),
    "own check": CHECKED,
}
before = torch._dynamo.config.recompile_limit
found = {name: judge_programs.judge_program(text).kind for name, text in programs.items()}
is_kept = torch._dynamo.config.recompile_limit == before
found["settings kept"] = is_kept and torch.get_default_dtype() is torch.float32

folder = os.path.join(os.getcwd(), "parents")
os.mkdir(folder)
with open(os.path.join(folder, "parent.py"), "w") as file:
    file.write(SCRIPT.format(sign="*"))
judge_programs.judge_targets([f"mutate={folder}"], 0, range(12), "rows.jsonl", 0, {})
rows = [json.loads(line) for line in open("rows.jsonl")]
found["mutants"] = sorted({row["kind"] for row in rows if "kind" in row})
found["ran"] = all(row["ran"] for row in rows if row.get("kind") == "as-parent")
options = {"cpp.simdlen": 0, "dce": True}
text = FACTORY.format(result="x", compile='{"options": %r}' % options)
reduced = option_pairs.reduce_options(text, lambda shorter: "dce" in shorter)
found["guilty"] = [*option_pairs.options_of(reduced)]
print(json.dumps(found))
"""


def test_each_outcome_is_told_from_the_others(tmp_path: Path) -> None:
    """Rounding and refusals are no findings, and a mutant that fails as its program is none."""
    done = run_torch_program(PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    mutants = set(found.pop("mutants"))
    assert found == {
        "rounding": "noise",
        "wrong": "wrong-result",
        "refused": "refused",
        "healthy": "ok",
        "script": "wrong-result",
        "healthy script": "ok",
        "own check": "own-check",
        "settings kept": True,
        "ran": True,
        "guilty": ["dce"],
    }
    assert "as-parent" in mutants
    assert "wrong-result" not in mutants
