"""The result of a comparison is tested in words and as input of the rules."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records import journal_reader
from reprokit.core.records.dumps import Frame, Link, Raised
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared import result_comparison
from reprokit.core.shared.contract import result_events
from reprokit.core.shared.contract.events import Progress
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.shared.result_comparison import Comparison, Difference
from reprokit.host.report import users_line
from reprokit.host.run.observation_reader import Journals

WRONG = Difference(
    0, "output", "values", "compiled", "1.0", "2.0", "1.0", (3,), 2, 24, 1.0, 0.1, 1.0
)
LITTLE = dataclasses.replace(WRONG, name="argument[0]", side="unclear")
EAGERS = dataclasses.replace(WRONG, side="eager", what="nan")
HEALTHY = Observation(
    exit_status=0,
    has_finished=True,
    has_instrumentation=True,
    graphs=(GraphRecord(1, "dynamo", "0/0", 3, is_done=True),),
)


def verdict_of(comparison: Comparison, **more: Any) -> Any:
    return judge_run(dataclasses.replace(HEALTHY, comparison=comparison, **more))


@pytest.mark.parametrize(
    ("comparison", "kind", "words"),
    [
        (
            Comparison((WRONG,), 1, 2, 2),
            "wrong-result",
            "eager gives 1.0, compiled code 2.0, float64 1.0; 2 of 24 elements",
        ),
        (
            Comparison((), 0, 2, 2),
            "ok",
            "the 2 tensors that it returned, changed or accumulated are equal to those of eager",
        ),
        (
            Comparison((EAGERS,), 1, 2, 2),
            "ok",
            "nearer to the float64 run than the results of eager are",
        ),
        (Comparison((LITTLE,), 1, 2, 2), "ok", "differ a little, and there is no float64 run"),
        (
            Comparison((WRONG,), 1, 2, 2, unsteady=("output",)),
            "ok",
            "eager itself gives a different output each time",
        ),
        (
            Comparison((WRONG, LITTLE), 2, 2, 2, unsteady=("argument[0]",)),
            "wrong-result",
            "output: values differ most at index [3]",
        ),
        (Comparison((), 0, 0, 0), "ok", "no call of a compiled callable returned a result"),
        (
            Comparison((), 0, 2, 2, skipped_calls=3, skipped_tensors=1),
            "ok",
            "tolerance; 3 calls and 1 tensor were not compared",
        ),
        (
            Comparison((WRONG,), 1, 2, 2, skipped_tensors=1),
            "wrong-result",
            "1 tensor was not compared",
        ),
    ],
)
def test_only_a_steady_difference_of_compiled_code_is_wrong(
    comparison: Comparison, kind: str, words: str
) -> None:
    """An unsteady result excludes only itself; a small difference without a float64 run is reported
    but is not a failure.
    """
    verdict = verdict_of(comparison)
    assert verdict.kind == kind
    assert words.lower() in (verdict.reason + " ".join(verdict.evidence)).lower()


def test_only_results_that_are_not_listed_are_counted() -> None:
    """The second of two wrong results is listed, so no more results differ."""
    rows = tuple(dataclasses.replace(WRONG, name=f"output[{n}]") for n in range(8))
    assert not any("more result" in row for row in verdict_of(Comparison(rows[:2], 2, 2)).evidence)
    assert "2 more results differ" in verdict_of(Comparison(rows, 8, 8)).evidence
    assert "1 more result differs" in verdict_of(Comparison(rows[:7], 7, 8)).evidence


@pytest.mark.parametrize("name", ["AssertionError", "TypeError"])
def test_wrong_results_come_before_an_exception_of_the_program(name: str) -> None:
    """The program checks its results, or what it does with them fails."""
    raised = Raised((Link(f"builtins.{name}", "it says so"),), "uncaught")
    wrong = Comparison((WRONG,), 1, 2, 2)
    assert verdict_of(wrong, raised=raised, exit_status=1).kind == "wrong-result"
    right = Comparison((), 0, 2, 2)
    assert verdict_of(right, raised=raised, exit_status=1).kind == "error-in-eager"


OWN = (Frame("/home/bob/train.py", "<module>", 7),)


@pytest.mark.parametrize(
    ("raised", "status", "words", "title"),
    [
        (
            Raised((Link("builtins.AssertionError", "lost 2", OWN),), "uncaught"),
            1,
            'The check `assert queue == [1, 0]` fails with torch.compile, also with backend="eager",',
            "failed-check: dynamo | AssertionError: lost #",
        ),
        (
            Raised((Link("builtins.RuntimeError", "a view", OWN),), "uncaught"),
            1,
            "The line `queue(compiled) == [1, 0]` raises RuntimeError with torch.compile, also with",
            "failed-check: dynamo | RuntimeError: a view",
        ),
        (
            None,
            3,
            'The program ends with exit status 3 with torch.compile, also with backend="eager",',
            "failed-check: dynamo | exit status 3",
        ),
    ],
)
def test_a_check_that_fails_only_when_compiled_is_a_failure(
    raised: Raised | None, status: int, words: str, title: str
) -> None:
    """No result is wrong, so what the check reads is: a list, or the gradient of an argument."""
    seen = dataclasses.replace(
        HEALTHY,
        is_command=True,
        exit_status=status,
        raised=raised,
        eager="passes",
        check="queue(compiled) == [1, 0]" if "line" in words else "assert queue == [1, 0]",
        failing_part="dynamo",
    )
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.phase, verdict.responsible) == ("failed-check", "dynamo", "torch")
    assert verdict.reason.startswith(words)
    signed = sign_verdict(verdict, seen)
    assert signed.title == title
    # a candidate ran without eager beside it, so its verdict is a different one
    alone = dataclasses.replace(seen, eager="", check="", failing_part="")
    candidate = judge_run(alone)
    assert candidate.kind in ("error-in-eager", "unknown")
    answer = same_failure.compare_failures(signed, candidate, sign_verdict(candidate, alone))
    assert answer == same_failure.SAME
    other = dataclasses.replace(alone, exit_status=4, raised=None)
    judged = judge_run(other)
    answer = same_failure.compare_failures(signed, judged, sign_verdict(judged, other))
    assert answer != same_failure.SAME


@pytest.mark.parametrize(
    ("check", "responsible"),
    [
        ("assert not torch._dynamo.utils.counters['graph_break']", "unknown"),
        ("assert frames_compiled", "unknown"),
        ("assert torch.compiler.is_compiling()", "unknown"),
        ("assert compiled(x)[0] is x", "torch"),
        ("assert torch.compile(f)(x) is x", "torch"),
    ],
)
def test_a_check_of_the_compiler_itself_is_no_defect(check: str, responsible: str) -> None:
    """A program may check what it wants of the compiler, such as no graph breaks."""
    raised = Raised((Link("builtins.AssertionError", "", OWN),), "uncaught")
    seen = dataclasses.replace(
        HEALTHY, raised=raised, exit_status=1, eager="passes", check=check, failing_part="dynamo"
    )
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.responsible) == ("failed-check", responsible)


def test_an_assertion_of_the_compiler_is_no_check_of_the_program() -> None:
    """An AssertionError that left the compiler is the failure; the results that it leaves out are
    not wrong.
    """
    tracer = Frame(
        "/env/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py", "_compile", 1
    )
    link = Link("builtins.AssertionError", "the name is there", (tracer,))
    raised = Raised((link,), "call")
    verdict = verdict_of(
        Comparison((WRONG,), 1, 1, 1), exit_status=1, raised=raised, compile_failures=(raised,)
    )
    assert (verdict.kind, verdict.cause) == ("exception", "AssertionError")


def test_wrong_numbers_are_one_family_at_any_position() -> None:
    """An infinity becomes a NaN a few operators later; a gradient belongs to the backward pass."""
    titles = set()
    for what in ("values", "nan", "inf", "integers"):
        seen = dataclasses.replace(
            HEALTHY,
            comparison=Comparison((dataclasses.replace(WRONG, what=what),), 1, 1, 1),
            failing_part="inductor",
            departs="acosh",
        )
        titles.add(sign_verdict(judge_run(seen), seen).title)
    assert titles == {"wrong-result: inductor | numbers @ acosh"}
    gradient = dataclasses.replace(WRONG, name="gradient of argument[0]")
    assert result_comparison.difference_family((gradient,)) == "numbers of the backward"
    assert result_comparison.difference_family((gradient, WRONG)) == "numbers"
    later = dataclasses.replace(WRONG, call=3)
    first = dataclasses.replace(gradient, call=2)
    assert result_comparison.difference_family((later, first)) == "numbers of the backward"
    at_end = dataclasses.replace(gradient, call=-1)
    assert result_comparison.difference_family((later, at_end)) == "numbers"
    assert (
        result_comparison.difference_family((dataclasses.replace(WRONG, what="stride"),))
        == "stride"
    )


def read_comparison(**fields: object) -> Comparison:
    event = journal_reader.event_from_json({"ev": "compared", **fields})
    assert isinstance(event, result_events.Compared)
    return result_comparison.comparison_of_event(event)


def test_a_comparison_is_restored_and_damage_is_left_out() -> None:
    """A comparison is restored from its event, and damaged events, which a foreign run directory
    may have, give no differences.
    """
    whole = Comparison((WRONG, LITTLE), 2, 3, 3, True, ("output",), True, True)
    assert read_comparison(**to_json(whole)) == whole
    for damaged in (
        {"differences": 5},
        {"unsteady": 5},
        {"differences": [{"name": 1}, None, 7]},
        {"count": "x"},
        {},
    ):
        assert read_comparison(**damaged) == Comparison()
    assert (
        read_comparison(differences=[{**to_json(WRONG), "index": 5, "max_abs": None}])
        .differences[0]
        .index
        == ()
    )


def test_the_exception_of_a_spawned_process_is_named() -> None:
    """``torch.multiprocessing.spawn`` has its traceback in the message, after two empty lines."""
    text = (
        "\n\n-- Process 0 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "/env/site-packages/torch/multiprocessing/spawn.py", line 87, in _wrap\n'
        "    fn(i, *args)\n"
        '  File "/home/bob/train.py", line 8, in worker\n    gather(x)\n'
        "RuntimeError: invalid tensor size\n"
    )
    link = Link("torch.multiprocessing.spawn.ProcessRaisedException", text, OWN)
    raised = Raised((link,), "uncaught")
    seen = dataclasses.replace(HEALTHY, is_command=True, exit_status=1, raised=raised)
    verdict = judge_run(seen)
    assert ": RuntimeError: invalid tensor size" in verdict.reason
    place = users_line.find_users_line(verdict, seen)
    assert place == "/home/bob/train.py:8 in worker"


def test_the_rest_of_a_function_after_a_graph_break_has_its_name() -> None:
    """Dynamo's name for it has the line of the break; pytorch#91469."""
    place = "/home/bob/train.py:8 in torch_dynamo_resume_in_step_at_7"
    verdict = Verdict("exception", "kernel-run", "RuntimeError", "", responsible_place=place)
    assert users_line.find_users_line(verdict, HEALTHY) == "/home/bob/train.py:8 in step"


@pytest.mark.parametrize(
    ("kind", "cids", "is_named"),
    [
        ("wrong-result", ("0/0", "0/1"), True),
        ("wrong-result", ("0/0", "1/0"), False),
        ("exception", ("0/0", "1/0"), True),
    ],
)
def test_a_function_is_named_only_if_the_failure_is_about_it(
    kind: str, cids: tuple[str, ...], is_named: bool
) -> None:
    """Of several compiled functions, the last one need not be the one with the wrong result."""
    journals = Journals({1: [Progress(unit="line", where="/home/bob/a.py:3 in good")]}, 0, {})
    graphs = tuple(GraphRecord(n, "dynamo", cid, 3) for n, cid in enumerate(cids))
    seen = Observation(graphs=graphs)
    found = users_line.find_compiled_function(journals, Verdict(kind, "aot", None, ""), seen)
    assert found == ("good in /home/bob/a.py" if is_named else "")
