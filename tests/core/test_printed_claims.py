"""The benchmark of claims reads what people see, and finds what is false in it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.claim_checks import FALSE, TRUE, UNCHECKED
from benchmarks.claim_runs import DraftedIssue, PlainRun
from benchmarks.printed_checks import PRINTED_CHECKS
from benchmarks.printed_claims import Statement, read_statements, statement
from benchmarks.record_checks import CHECKS
from reprokit.core.records.claims import HOW

TERMINAL = """\
a line of the program
exception in dynamo-trace: KeyError was raised: 'buf1'.
your line  train.py:2 in step: return x.sin() ...
caused by  torch: it fails with backend="inductor" and passes with backend="aot_eager"
known      no: the catalogue has no failure that is like it
avoid it   backend="aot_eager" or torch._inductor.config.max_fusion_size = 1
repro      3 lines, fails in 2 of 2 fresh runs: out/run-001/pack/repro.py
report     out/run-001/pack/report.html
next       reprokit issue out/run-001/pack

import torch
"""
PAGE = """\
<header><p class="kicker">exception</p><h1>Exception while tracing with Dynamo: KeyError</h1>
<p class="lead">KeyError was raised, in phase dynamo-trace: 'buf1'.</p></header>
<main><p class="own">Your code: <code>train.py:2 in step: return x.sin()</code></p>
<section aria-labelledby="program"><pre><code id="program-text">import torch
# a comment

def f(x):
    return x
</code></pre><p class="note">3 lines; the same failure in 2 of 2 fresh runs, eager passes.</p></section>
<section aria-labelledby="ablation"><table><tbody>
<tr><th>backend="aot_eager"</th><td>passes</td><td>0.4</td></tr></tbody></table></section></main>
"""
REPRO = "import torch\n# a comment\n\ndef f(x):\n    return x\n"
OUTPUT = "Traceback (most recent call last):\ntorch/_dynamo/x.py\nKeyError: 'buf1'"
FAILED = PlainRun(1, OUTPUT, {}, printed=OUTPUT, graphs={"dynamo": [3]})
PASSED = PlainRun(0, "", {})


class Canned(DraftedIssue):
    """A pack whose plain runs are known: it fails unless a backend below Inductor is asked for."""

    def run(
        self,
        is_repro: bool = False,
        changes: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        compares: bool = False,
    ) -> PlainRun:
        changes = changes or {}
        backend = changes.get("compile", {}).get("backend", "inductor")
        is_avoided = backend != "inductor" or "max_fusion_size" in str(changes)
        return PASSED if is_avoided or changes.get("without_compile") else FAILED


@pytest.fixture
def drafted(tmp_path: Path) -> Canned:
    pack = tmp_path / "out" / "run-001" / "pack"
    pack.mkdir(parents=True)
    (tmp_path / "train.py").write_text("def step(x):\n    return x.sin() + 1\n")
    documents = {
        "verdict.json": {
            "kind": "exception",
            "cause": "KeyError",
            "phase": "dynamo-trace",
            "reason": "KeyError was raised.",
            "stage": "",
            "responsible_place": "",
        },
        "signature.json": {"algorithm": 10, "title": "exception: dynamo-trace | KeyError @ x:y"},
        "../run.json": {"target": {"kind": "command", "command": ["python", "train.py"]}},
    }
    for name, document in documents.items():
        (pack / name).write_text(json.dumps(document))
    (pack / "report.html").write_text(PAGE)
    (pack / "repro.py").write_text(REPRO)
    return Canned("case", pack.parent, tmp_path, None, tmp_path)


def answers(drafted: Canned, rows: list[Statement]) -> list[tuple[str, str]]:
    checks = {**CHECKS, **PRINTED_CHECKS}
    return [
        (row["text"], checks[check["how"]](drafted, row, check))
        for row in rows
        for check in row["checks"]
    ]


def test_each_line_of_a_summary_and_of_a_page_is_checked(drafted: Canned) -> None:
    """All that is stated of this run is true, and nothing is without a check."""
    found = read_statements(TERMINAL, drafted.run_dir)
    for rows in found.values():
        assert not [row["text"] for row in rows if not row["checks"] and not row["is_structure"]]
        assert not [row for row in answers(drafted, rows) if row[1] != TRUE]
    assert len(found["terminal"]) == 8
    assert len(found["report.html"]) == 6


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("exception in dynamo-trace", "crash in dynamo-trace"),
        ("exception in dynamo-trace", "exception in lowering"),
        ("train.py:2 in step", "train.py:1 in step"),
        ("return x.sin()", "return x.cos()"),
        ("in step", "in halve"),
        ('passes with backend="aot_eager"', 'passes with backend="inductor"'),
        ('fails with backend="inductor"', 'fails with backend="eager"'),
        ('backend="aot_eager" or', 'backend="inductor" or'),
        ("max_fusion_size = 1", "max_other_size = 1"),
        ("3 lines", "5 lines"),
        ("pack/repro.py", "pack/absent.py"),
        ("pack/report.html", "pack/absent.html"),
        ("issue out", "issue absent/out"),
    ],
)
def test_a_false_line_of_a_summary_is_found(drafted: Canned, true: str, false: str) -> None:
    """Each check can fail."""
    assert true in TERMINAL
    text = TERMINAL.replace(true, false, 1)
    if false.startswith("crash"):
        document = json.loads((drafted.run_dir / "pack" / "verdict.json").read_text())
        (drafted.run_dir / "pack" / "verdict.json").write_text(
            json.dumps({**document, "kind": "crash"})
        )
    rows = read_statements(text, drafted.run_dir)["terminal"]
    assert [answer for _, answer in answers(drafted, rows)].count(FALSE) >= 1


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("Dynamo: KeyError", "Dynamo: ValueError"),
        ("phase dynamo-trace: 'buf1'", "phase dynamo-trace: 'missing'"),
        ("train.py:2", "train.py:9"),
        ("def f(x)", "def g(x)"),
        ('<p class="note">3 lines', '<p class="note">4 lines'),
        ("<td>passes</td>", "<td>the same failure</td>"),
        ('backend="aot_eager"', 'backend="inductor"'),
    ],
)
def test_a_false_part_of_a_page_is_found(drafted: Canned, true: str, false: str) -> None:
    """Each check can fail."""
    assert true in PAGE
    (drafted.run_dir / "pack" / "report.html").write_text(PAGE.replace(true, false, 1))
    rows = read_statements("", drafted.run_dir)["report.html"]
    assert FALSE in [answer for _, answer in answers(drafted, rows)]


def test_the_command_of_an_attached_process_is_checked(drafted: Canned) -> None:
    """Folder and command are those of the process, and the function is on its stack."""
    (drafted.run_dir / "pack" / "report.html").unlink()
    for folder, command, answer in (
        (drafted.folder, "python train.py", TRUE),
        (drafted.folder / "other", "python train.py", FALSE),
        (drafted.folder, "python other.py", FALSE),
    ):
        row = f"capture    cd {shlex.quote(str(folder))} && reprokit capture -- {command}\n"
        text = "exception in dynamo-trace: KeyError was raised.\n" + row
        rows = read_statements(text, drafted.run_dir)["terminal"][-1:]
        assert [one for _, one in answers(drafted, rows)] == [answer]


def test_a_planted_statement_of_an_issue_is_found(drafted: Canned) -> None:
    """The checks of operators, lines and numbers of a statement see what is not so."""
    for how, text, what, answer in (
        ("operator", "", {"operator": "KeyError"}, TRUE),
        ("operator", "", {"operator": "acosh_1"}, FALSE),
        ("lines", "3 lines; the same failure", {"lines": 5}, TRUE),
        ("lines", "5 lines; the same failure", {"lines": 5}, FALSE),
        ("lines", "There is no proven repro.", {"lines": 0}, FALSE),
        ("passes", "", {"how": "passes", "with": "no torch.compile"}, TRUE),
        ("passes", "", {"how": "passes", "compile": {"backend": "inductor"}}, FALSE),
        ("failure", "[dynamo] KeyError: 'buf1'", {"kind": "exception", "cause": "KeyError"}, TRUE),
        ("failure", "[inductor] KeyError", {"kind": "exception", "cause": "KeyError"}, FALSE),
        # the run did not reach the pass that it leaves out
        ("passes", "", {"how": "passes", "without_application": ["pass", "p"]}, UNCHECKED),
    ):
        row = {**statement(text), "about": "the captured run"}
        assert CHECKS[how](drafted, row, what) == answer, (how, what)


def test_each_way_to_check_a_claim_has_a_check() -> None:
    """What a claim names, the benchmark can do."""
    assert set(HOW) == set(CHECKS)
