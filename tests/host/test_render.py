"""The issue has the headings of the form and fits into GitHub's limits for any text."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.experiments.ablation import AblationStep, ProgramAblation
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Answer, Missing, Observation
from reprokit.host.minimize.proofs import proof, proven
from reprokit.host.pack import issue_claims, issue_forms, issue_text
from reprokit.host.report import template_files
from tests.support.examples import examples

HEADINGS = ["### 🐛 Describe the bug", "### Error logs", "### Versions"]


def repro(text: str) -> proven.Repro:
    """Return a program that was proved."""
    proof_of_text = proof.Proof(
        "same",
        "exception: codegen | KeyError",
        "0123456789ab",
        runs=1,
        hits=1,
        digest=proof.program_digest(text),
    )
    return proven.Repro(text, "the source", proof_of_text)


def facts(**changes: object) -> issue_text.IssueFacts:
    values: dict[str, object] = {
        "verdict": Verdict(
            "exception", "codegen", "KeyError", "KeyError was raised.", ("evidence one",)
        ),
        "signature": Signature("0123456789ab", "exception: codegen | KeyError: 'buf#'", 1),
        "seen": Observation(exit_status=1, raised=Raised((Link("KeyError", "'buf1'"),))),
        "command": "reprokit capture x.py:make",
        "program": repro("import torch\n"),
        "is_simulated": False,
        "collect_env": "PyTorch version: 2.13.0",
        "environment": {},
        "variables": {"TORCH_LOGS": "+dynamo"},
        "configs": {"torch._dynamo.config": {"recompile_limit": "3"}},
        "missing": (),
    }
    return issue_text.IssueFacts(**{**values, **changes})  # type: ignore[arg-type]


def headings(text: str) -> list[str]:
    """Return the headings outside of code blocks."""
    headings_of_text, fence = [], ""
    for line in text.splitlines():
        ticks = re.match(r"`{3,}", line)
        if ticks and not fence:
            fence = ticks.group()
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence and line.startswith("#"):
            headings_of_text.append(line)
    return headings_of_text


def test_the_issue_has_exactly_the_headings_of_the_form() -> None:
    """A submitted form becomes these three headings, and the placeholder for a human summary is
    first.
    """
    text = issue_text.make_issue(facts()).joined
    assert headings(text) == HEADINGS
    first = text.split(HEADINGS[0])[1].strip()
    assert first.startswith("<!-- human summary")
    assert "```python\nimport torch\n```" in text
    assert "torch._dynamo.config.recompile_limit = 3" in text


@settings(max_examples=examples(30))
@given(st.text(max_size=200), st.integers(0, 200_000))
def test_any_text_fits_and_cannot_leave_its_block(text: str, size: int) -> None:
    """Fences in a log or a repro neither close the block nor add a heading, and the limit of 60,000
    characters holds.
    """
    nasty = (text + "\n```\n### Versions\n````\n") * (size // (len(text) + 30) + 1)
    seen = Observation(exit_status=1, raised=Raised((Link("E", nasty),)), stderr_tail=nasty)
    issue = issue_text.make_issue(
        facts(seen=seen, program=repro(f"#{nasty}"), collect_env=nasty, command=nasty)
    )
    assert len(issue.joined) <= issue_text.MAX_ISSUE_CHARS
    assert headings(issue.joined) == HEADINGS


def test_only_a_proved_program_is_listed_as_repro() -> None:
    """Any other program is mentioned with the reason, and its text stays in the pack."""
    text = issue_text.make_issue(facts()).joined
    assert "Repro (the source):" in text and "There is no proven repro" not in text
    candidate = proven.Candidate(
        "import secret_of_the_pack\n", "a graph", "run alone in a fresh process it passes"
    )
    issue = issue_text.make_issue(facts(program=candidate))
    text = issue.joined
    stated = [claim.text for claim in issue.claims]
    assert "`candidate.py` in the pack is a graph." in stated
    no_error = "The run wrote no error message."
    assert (no_error in stated) == (no_error in text)
    assert (
        "There is no proven repro: run alone in a fresh process it passes. `candidate.py` in the"
        " pack is a graph." in text
    )
    assert "Repro (" not in text and "secret_of_the_pack" not in text
    text = issue_text.make_issue(
        facts(program=proven.Candidate("", "", "no graph was recorded"))
    ).joined
    assert (
        "There is no proven repro: no graph was recorded.\n" in text and "candidate.py" not in text
    )
    long = issue_text.make_issue(facts(program=repro("x = 1\n" * 9_000))).joined
    assert (
        "Repro: repro.py in the pack (the source); with 54000 characters it is too long for this text."
        in long
    )
    assert "There is no proven repro: because." in issue_text.render_pack_readme(
        facts(program=proven.Candidate("", "", "because")), [], [], "nothing was hidden"
    )


@pytest.mark.parametrize(
    ("program", "needs"),
    [
        ("import torch, os\nfrom torch import nn\nimport triton\n", ""),
        (
            "import torch\nimport timm.layers as layers\ndef f():\n    from einops import rearrange\n",
            "; it needs einops, timm besides torch",
        ),
    ],
)
def test_the_issue_names_the_libraries_that_its_program_needs(program: str, needs: str) -> None:
    """A maintainer needs nothing but torch, or reads what else."""
    said = issue_claims.about_program(repro(program), is_simulated=False)
    assert said.text == f"the source{needs}"
    libraries = [check.what["libraries"] for check in said.checks if check.how == "imports"]
    assert libraries == ([["einops", "timm"]] if needs else [])


def test_logs_are_cut_in_the_middle() -> None:
    """The head and the tail of a log are the most useful parts; the removed part is counted."""
    text = issue_text.cut_text("head" + "x" * 100_000 + "tail", 1_000)
    assert (
        text.startswith("head") and text.endswith("tail") and re.search(r"<<cut \d+ bytes>>", text)
    )
    assert len(text) <= 1_000
    assert issue_text.cut_text("short", 1_000) == "short"


@given(st.text(max_size=20_000))
@settings(max_examples=examples(50))
def test_the_url_is_short_and_sets_no_labels(title: str) -> None:
    """labels= gives a 404 for users without permission, and more than 8,192 bytes give a 414."""
    url = issue_forms.issue_form_url(title, "pytorch/pytorch")
    assert len(url) < 8_192
    assert url.startswith(
        "https://github.com/pytorch/pytorch/issues/new?template=pt2-bug-report.yml&title="
    )
    assert "labels=" not in url


def test_the_ablation_is_one_sentence() -> None:
    """The sentence is in the issue, and the table of the steps is not; without an ablation, neither
    is.
    """
    steps = (
        AblationStep('backend="eager"', "backends", "passes", "ok", ""),
        AblationStep('backend="aot_eager"', "backends", "same", "exception", "title"),
    )
    said = 'It fails with `backend="aot_eager"` and passes with `backend="eager"`'
    text = issue_text.make_issue(facts(ablation=ProgramAblation(steps))).joined
    assert said.replace("`", "") in text.replace("`", "")
    assert "| ablation step |" not in text
    assert "It fails with" not in issue_text.make_issue(facts()).joined


@pytest.mark.parametrize("count", [12, 21])
def test_an_issue_is_read_to_its_end(count: int) -> None:
    """The repro starts by line 10, and there are at most 45 lines before the versions for a usual
    repro, however long the log and the lists are. A longer repro adds only its own lines.
    """
    evidence = tuple(f"e{i}" for i in range(50))
    verdict = Verdict("exception", "codegen", "KeyError", "x", evidence, responsible="torch")
    seen = Observation(
        exit_status=1,
        raised=Raised((Link("KeyError", "'buf1'"),)),
        stderr_tail="line of the log\n" * 500,
        answers=tuple(Answer(f"question {i}", "answer") for i in range(50)),
    )
    program = repro("import torch\n" + "x = 1\n" * (count - 1))
    frames = "".join(f'  File "torch/a.py", line {i}, in f{i}\n    call({i})\n' for i in range(40))
    traceback = f"Traceback (most recent call last):\n{frames}KeyError: 'buf1'"
    issue = issue_text.make_issue(
        facts(verdict=verdict, seen=seen, program=program, traceback=traceback, traces=("t.gz",))
    )
    lines = issue.joined.splitlines()
    most = issue_text.MAX_LINES + max(0, count - 12)
    assert lines.index("```python") < 10 and lines.index("### Versions") <= most
    assert re.search(r"\[3\d outer frames left out\]", issue.joined) and "in f39" in issue.joined
    assert "`TORCH_TRACE` for tlparse: `t.gz` in the attached tarball." in issue.joined
    assert lines.count("<details><summary>How it was found</summary>") == 1


def test_the_range_of_versions_ends_the_first_paragraph() -> None:
    """What reprokit bisect found follows the sentences about the failure, as text."""
    describe = issue_text.make_issue(facts()).describe
    text = issue_text.add_version_range(describe, "It started between 2.9.1 and 2.10 @you.")
    rows = text.splitlines()
    changed = [row for row in rows if row not in describe.splitlines()]
    assert len(rows) == len(describe.splitlines()) and len(changed) == 1
    assert changed[0].startswith("`torch.compile` raises")
    assert changed[0].endswith(
        "It failed with torch 2.13.0. It started between 2.9.1 and 2.10 `@you`."
    )


def test_a_failure_outside_the_compiler_should_not_be_filed() -> None:
    """The banner does not claim that the target also fails without compile, because the failure may
    only be outside of compiled code.
    """
    text = issue_text.make_issue(
        facts(verdict=Verdict("error-in-eager", "eager", "ValueError", "It fails.", ()))
    ).joined
    assert "> **Please do not file this:** nothing shows that the compiler is at fault." in text
    assert "fails without" not in text


def test_an_unknown_name_in_a_template_is_an_error() -> None:
    """StrictUndefined: a typo in a template must not become an empty line in an issue."""
    with pytest.raises(jinja2.UndefinedError):
        template_files.markdown_templates().from_string("{{ nothing_of_this_name }}").render()


def test_the_readme_lists_what_is_missing_and_trimmed() -> None:
    """A reader sees which data is missing."""
    text = issue_text.render_pack_readme(
        facts(missing=(Missing("gpus", "no driver"),)),
        [("repro.py", "the program")],
        ["trace: gone"],
        "2 secrets",
    )
    assert (
        "Hidden: 2 secrets; `manifest.json`" in text
        and "- gpus: no driver" in text
        and "- trace: gone" in text
        and "| `repro.py` | the program |" in text
    )


def test_templates_are_read_from_the_package_or_the_tree() -> None:
    """Every template on disk is rendered from the installed package or the source tree."""
    folder = Path(__file__).resolve().parents[2] / "templates"
    for path in folder.rglob("*.j2"):
        assert template_files.read_template(path.relative_to(folder).as_posix()) == path.read_text(
            encoding="utf-8"
        )
