"""Failures that need a cache: which look-ups are wrong, the signature, and the two processes."""

from __future__ import annotations

import ast
import dataclasses

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.caches.cache_stages import CacheStage, DamagedFile
from reprokit.core.records.caches.cache_uses import (
    MissedEntry,
    count_uses,
    missed_entries,
    stored_keys,
    unused_precompiled_code,
)
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.observation import Observation
from reprokit.core.reduce.two_processes import CachePlan, plan_of_observation, with_writer
from reprokit.core.shared.contract.cache_events import CacheUsed
from reprokit.core.shared.result_comparison import Comparison, Difference

LOAD = Frame("/env/lib/python3.11/site-packages/torch/_inductor/codecache.py", "load_fn", 3855)
CALL = Frame("/env/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", "compile_wrapper", 9)
TOO_SHORT = Link("builtins.ImportError", "/tmp/a/k.main.so: file too short", (LOAD, CALL))
FAILED = Observation(
    exit_status=1, has_instrumentation=True, is_watched=True, raised=Raised((TOO_SHORT,), "call")
)
PROGRAM = "import torch\n\ndef f(x):\n    return x.sin()\n\ntorch.compile(f)(torch.ones(3))\n"


def use(outcome: str, key: str, cache: str = "fx-graph", **parts: str) -> CacheUsed:
    return CacheUsed(cache=cache, outcome=outcome, key=key, parts=parts)


def in_stage(seen: Observation, name: str, *damaged: DamagedFile, **more: object) -> Observation:
    stages = (CacheStage("cold", "ok", 9.0), CacheStage(name, "exception", 2.0, damaged=damaged))
    if "settings" in more:
        stages = (*stages[:-1], dataclasses.replace(stages[-1], settings=more["settings"]))
    return dataclasses.replace(seen, stage=name, stages=stages)


def test_a_look_up_that_must_find_an_entry_is_told_from_one_that_need_not() -> None:
    """A stored key must be found, and the same graph must have the same key; a new graph, a graph
    that was not stored and a hit are no errors.
    """
    wrote = [
        use("miss", "a", gm="g", system="1", opts="1"),
        use("stored", "a"),
        use("miss", "never stored", gm="n", system="1"),
        use("bypass", ""),
    ]
    stored = stored_keys(wrote)
    assert stored == {"fx-graph": {"a"}}
    assert count_uses(wrote) == {"fx-graph bypass": 1, "fx-graph miss": 2, "fx-graph stored": 1}

    def missed(*reads: CacheUsed) -> list[str]:
        return [entry.cause for entry in missed_entries(stored, wrote, reads)]

    assert missed(use("hit", "a")) == []
    assert missed(use("miss", "a"), use("miss", "a")) == ["fx-graph entry is not used"]
    assert missed(use("miss", "b", gm="g", system="2", opts="1")) == [
        "fx-graph key changes: system"
    ]
    assert missed(use("miss", "b", gm="other", system="1", opts="1")) == []
    assert missed(use("miss", "never stored", gm="n", system="1")) == []
    assert missed(use("hit", "a"), use("miss", "b", gm="g", system="2")) == []
    assert missed(use("miss", "a", cache="aot-autograd")) == []


def test_code_that_is_found_and_compiled_again_is_not_used() -> None:
    """A reader with the code of each function compiles nothing; without it, it must compile."""
    hit, miss = use("hit", "f", cache="dynamo"), use("miss", "g", cache="dynamo")
    assert unused_precompiled_code([hit], 0) == ()
    assert unused_precompiled_code([hit, miss], 1) == ()
    assert unused_precompiled_code([use("hit", "a")], 1) == ()
    (entry,) = unused_precompiled_code([hit, hit], 2)
    assert entry.cause == "dynamo entry is not used"
    assert entry.detail == "2 graphs were compiled again"


def test_the_signature_of_a_cache_does_not_depend_on_the_stage_and_differs_from_a_fresh_one() -> (
    None
):
    """The same exception has one signature in each stage that loads, and another one in a fresh
    compile; the verdict names the stage and the stages that pass.
    """
    signatures = {}
    for name in ("", "warm", "loaded"):
        seen = in_stage(FAILED, name) if name else FAILED
        verdict = judge_run(seen)
        assert (verdict.kind, verdict.phase, verdict.stage) == ("exception", "cpp-build", name)
        signatures[name] = sign_verdict(verdict, seen)
    assert signatures["warm"].id == signatures["loaded"].id != signatures[""].id
    assert "| cached code: ImportError: " in signatures["warm"].title
    assert same_failure.needs_cache(signatures["warm"])
    assert not same_failure.needs_cache(signatures[""])
    verdict = judge_run(in_stage(FAILED, "warm"))
    assert verdict.reason.startswith("It fails only in a second process, with the cache of")
    assert "stage cold, with an empty cache: ok in 9.0 s" in verdict.evidence
    assert verdict.responsible == "torch"


def test_a_damaged_file_is_not_blamed_on_torch() -> None:
    """The machine is responsible for a file that was damaged before the stage."""
    damaged = DamagedFile("yr/k.main.so", "the file is empty")
    seen = in_stage(FAILED, "warm", damaged)
    verdict = judge_run(seen)
    assert (verdict.responsible, verdict.responsible_place) == ("machine", "yr/k.main.so")
    plan = plan_of_observation(seen, {}, "")
    assert plan is not None
    assert 'rglob("*.main.so")' in with_writer(PROGRAM, plan)
    own = plan_of_observation(in_stage(FAILED, "own"), {}, "")
    assert own is not None and "private" in own.why_not


@pytest.mark.parametrize(
    ("settings", "party"),
    [(("FACTOR",), "user"), (("TORCHINDUCTOR_X",), "unknown"), (("torch.a.b=1",), "unknown")],
)
def test_a_stale_key_is_the_programs_own_only_for_a_variable_of_the_program(
    settings: tuple[str, ...], party: str
) -> None:
    """The key of a pass of the program lacks a variable of the program; a setting of torch belongs
    into torch's part of the key.
    """
    wrong = Difference(0, "output", "values", "unknown", "3", "2", count=1, total=1)
    seen = Observation(
        exit_status=0,
        has_finished=True,
        comparison=Comparison((wrong,), 1, 1, 1),
        own_passes=("stale.py:27",),
    )
    verdict = judge_run(in_stage(seen, "changed", settings=settings))
    assert (verdict.kind, verdict.responsible) == ("wrong-result", party)
    assert "a fresh compile gives 3, code from the cache 2" in verdict.reason


def test_a_miss_is_the_programs_own_if_its_pass_changes_the_key() -> None:
    """Without that evidence, nothing shows who is responsible for a miss."""
    entry = MissedEntry("fx-graph", "k", ("post_grad_custom_post_pass",))
    seen = Observation(exit_status=0, has_finished=True, own_passes=("mine.py:3",), missed=(entry,))
    seen = in_stage(seen, "warm")
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.responsible) == ("cache-miss", "user")
    title = sign_verdict(verdict, seen).title
    assert title == (
        "cache-miss: cache-load | cached code: fx-graph key changes: post_grad_custom_post_pass"
    )
    unused = dataclasses.replace(seen, missed=(MissedEntry("fx-graph", "k"),))
    assert judge_run(unused).responsible == "unknown"


@pytest.mark.parametrize(
    "plan",
    [
        CachePlan("warm", missed="fx-graph"),
        CachePlan("loaded"),
        CachePlan("precompiled", missed="dynamo"),
        CachePlan("changed", {"FACTOR": "3", "torch._inductor.config.epilogue_fusion": "False"}),
        CachePlan("own", damaged=(DamagedFile("fxgraph/ab/k/e", "it is cut", 100),)),
    ],
)
def test_a_program_of_two_processes_has_the_program_unchanged(plan: CachePlan) -> None:
    """The writer is started before torch is imported, and the program itself is in the file once."""
    text = with_writer(PROGRAM, plan)
    tree = ast.parse(text)
    names = [a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names]
    assert names.index("subprocess") < names.index("torch") and names.count("torch") == 1
    assert text.index("subprocess.run") < text.index("import torch")
    assert PROGRAM.partition("import torch\n")[2].strip() in text
    assert with_writer(PROGRAM, None) == PROGRAM


def test_only_the_reader_checks_the_results() -> None:
    """An assertion that fails in the writer would leave the reader without its cache."""
    program = f"{PROGRAM}torch.testing.assert_close(\n    1, 2\n)\nassert 3\n"
    text = with_writer(program, CachePlan("changed", {"FACTOR": "3"}))
    assert text.endswith(
        "if is_reader:\n    torch.testing.assert_close(\n        1, 2\n    )\n"
        "if is_reader:\n    assert 3\n"
    )
