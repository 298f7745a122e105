"""The issue has the form's headings and fits into GitHub's limits, whatever goes in."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.host.minimize import proof, proven
from reprokit.host.pack import issue_text, issue_url
from reprokit.host.report import template_files

HEADINGS = ["### 🐛 Describe the bug", "### Error logs", "### Versions"]


def repro(text: str) -> proven.Repro:
    """A program that was proved."""
    told = proof.Proof(
        "same",
        "exception: codegen | KeyError",
        "0123456789ab",
        runs=1,
        hits=1,
        digest=proof.program_digest(text),
    )
    return proven.Repro(text, "the source", told)


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
    """Headings outside of code blocks."""
    found, fence = [], ""
    for line in text.splitlines():
        ticks = re.match(r"`{3,}", line)
        if ticks and not fence:
            fence = ticks.group()
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence and line.startswith("#"):
            found.append(line)
    return found


def test_the_issue_has_exactly_the_headings_of_the_form() -> None:
    """A submitted form becomes these three headings; the human's slot stands first."""
    text = issue_text.make_issue(facts()).joined
    assert headings(text) == HEADINGS
    first = text.split(HEADINGS[0])[1].strip()
    assert first.startswith("<!-- human summary")
    assert "```python\nimport torch\n```" in text
    assert "torch._dynamo.config.recompile_limit = 3" in text


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=200), st.integers(0, 200_000))
def test_any_text_fits_and_cannot_break_out(text: str, size: int) -> None:
    """Fences in a log or repro neither close the block nor add a heading; 60,000 characters
    hold.
    """
    nasty = (text + "\n```\n### Versions\n````\n") * (size // (len(text) + 30) + 1)
    seen = Observation(exit_status=1, raised=Raised((Link("E", nasty),)), stderr_tail=nasty)
    issue = issue_text.make_issue(
        facts(seen=seen, program=repro(f"#{nasty}"), collect_env=nasty, command=nasty)
    )
    assert len(issue.joined) <= issue_text.ISSUE_CHARS
    assert headings(issue.joined) == HEADINGS


def test_only_a_proved_program_stands_under_repro() -> None:
    """Any other is named with the reason, and its text stays in the pack."""
    text = issue_text.make_issue(facts()).joined
    assert "Repro (the source):" in text and "There is no proven repro" not in text
    candidate = proven.Candidate(
        "import secret_of_the_pack\n", "a graph", "run alone in a fresh process it passes"
    )
    text = issue_text.make_issue(facts(program=candidate)).joined
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
        "Repro: repro.py in the pack (the source); its 54000 characters are too many for this text."
        in long
    )
    assert "There is no proven repro: because." in issue_text.pack_readme(
        facts(program=proven.Candidate("", "", "because")), [], [], "nothing was hidden"
    )


def test_logs_are_cut_in_the_middle() -> None:
    """Head and tail of a log tell most; what is gone is counted."""
    text = issue_text.cut_text("head" + "x" * 100_000 + "tail", 1_000)
    assert (
        text.startswith("head") and text.endswith("tail") and re.search(r"<<cut \d+ bytes>>", text)
    )
    assert len(text) <= 1_000
    assert issue_text.cut_text("short", 1_000) == "short"


@given(st.text(max_size=20_000))
@settings(max_examples=50, deadline=None)
def test_the_url_is_short_and_sets_no_labels(title: str) -> None:
    """labels= is a 404 for those without rights; over 8,192 bytes is a 414."""
    url = issue_url.issue_form_url(title, "pytorch/pytorch")
    assert len(url) < 8_192
    assert url.startswith(
        "https://github.com/pytorch/pytorch/issues/new?template=pt2-bug-report.yml&title="
    )
    assert "labels=" not in url


def test_the_ladder_is_a_sentence_and_a_table() -> None:
    """Where it begins, with its evidence; nothing stands there when no rung was asked."""
    steps = [
        {"name": 'backend="eager"', "answer": "passes", "seconds": 0.5},
        {"name": "x|y", "answer": "same", "seconds": 2.0},
    ]
    told = {"sentence": "It fails with inductor.", "steps": steps}
    text = issue_text.make_issue(facts(ablation=told)).joined
    assert "**It fails with inductor.**" in text and '| backend="eager" | passes | 0.5 |' in text
    assert "| ablation step |" not in issue_text.make_issue(facts()).joined


def test_a_failure_outside_the_compiler_is_not_to_be_filed() -> None:
    """The banner holds whether the target ran without compile too, or only outside of what the
    compiler made.
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
    """A reader sees at once what is not there."""
    text = issue_text.pack_readme(
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
    """Every template on disk renders from where this installation keeps it."""
    folder = Path(__file__).resolve().parents[2] / "templates"
    for path in folder.rglob("*.j2"):
        assert template_files.read_template(path.relative_to(folder).as_posix()) == path.read_text(
            encoding="utf-8"
        )
