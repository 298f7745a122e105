"""The programs of a hunt, without a compile: eager runs them, and they have all features."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.warm_processes import run_torch_program

PROGRAM = """
import json

from reprokit.agent.hunt import run_programs, source_table

source, count = {source!r}, {count}
raised, chosen, calls = [], set(), 0
for number in range(count):
    target = source_table.write_target(source, 1, number)
    assert target == source_table.write_target(source, 1, number)
    chosen |= {{name.partition(":")[0] for name in target.chosen}}
    calls = max(calls, target.text.count("calls.append"))
    try:
        run_programs.run_program(target.text, "eager")
    except run_programs.ProgramRaised as problem:
        raised.append([number, repr(problem.__cause__)])
print(json.dumps([raised, sorted(chosen), calls]))
"""


def test_chains_run_without_the_compiler_and_have_each_feature(tmp_path: Path) -> None:
    """A few may raise in another run, and a number and a seed reproduce each of them."""
    done = run_torch_program(PROGRAM.format(source="opinfo", count=40), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    raised, chosen, calls = json.loads(done.stdout.splitlines()[-1])
    assert len(raised) <= 3, raised
    features = {"alias", "change", "context", "layout", "operator", "output", "transform", "view"}
    assert features <= {*chosen}
    assert calls > 2


def test_a_small_model_runs_without_the_compiler(tmp_path: Path) -> None:
    """Its type and its entry are choices."""
    done = run_torch_program(PROGRAM.format(source="models=gpt2", count=1), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])[:2] == [[], ["entry", "type"]]
