"""A claim is about what its evidence is about, and public texts print nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest

from reprokit.core.experiments.ablation import AblationStep, ProgramAblation
from reprokit.core.judge.stacks import location
from reprokit.core.records.claims import HOW, Check, claim
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.host.report import markdown
from tests.support.environments import ROOT

EAGER_BACKEND = {"compile": {"backend": "eager"}}
STEPS = (
    AblationStep('backend="eager"', "backends", "passes", "ok", "", overrides=EAGER_BACKEND),
    AblationStep('backend="aot_eager"', "backends", "same", "exception", "title"),
)
VERDICT = Verdict("exception", "codegen", "KeyError", "KeyError was raised.")
IMPORTS = """
from reprokit.core.experiments.ablation import PartAblation, ProgramAblation
from reprokit.core.records.claims import Claim, UsersRun, claim
from reprokit.host.minimize.proofs.proof import Proof
"""


def mypy(code: str, folder: Path) -> str:
    (folder / "example.py").write_text(IMPORTS + code)
    words = ("--config-file", str(ROOT / "pyproject.toml"), str(folder / "example.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], capture_output=True, text=True, cwd=ROOT
    )
    return done.stdout


@pytest.mark.long
def test_the_types_forbid_a_claim_about_the_program_from_a_part_of_it(tmp_path: Path) -> None:
    """What a reduced program showed is no statement about the user's run."""
    good = "shown: Claim[UsersRun] = ProgramAblation().claim\n"
    assert "Success" in mypy(good, tmp_path)
    for wrong in ("PartAblation().claim", 'claim("It passes.", Proof("same", "", ""))'):
        said = mypy(f"shown: Claim[UsersRun] = {wrong}\n", tmp_path)
        assert "Incompatible types in assignment" in said or "Argument" in said, said
    said = mypy("kept: ProgramAblation = ProgramAblation().of_part()\n", tmp_path)
    assert "Incompatible types in assignment" in said


def test_the_subject_of_the_sentence_is_that_of_the_evidence() -> None:
    """The same steps of a part of the program are a claim about the program of the pack."""
    whole, part = ProgramAblation(STEPS), ProgramAblation(STEPS).of_part()
    assert whole.claim.text.startswith("It fails") and whole.claim.about.name == "the captured run"
    assert part.claim.text.startswith("A part of it fails")
    assert part.claim.about.name == "the program of the pack"
    assert [check.how for check in whole.claim.checks] == ["passes", "fails"]
    assert whole.claim.checks[0].what["compile"] == {"backend": "eager"}


def test_the_blamed_pass_is_a_part_of_the_claim_that_is_checked() -> None:
    """A sentence is true only if each of its clauses is true."""
    whole = ProgramAblation(STEPS, "it disappears without the post-grad pass `reinplace`")
    assert "reinplace" in whole.claim.text
    what = {"without_application": ("post-grad pass", "reinplace")}
    assert whole.claim.checks[0] == Check("passes", what)


def test_counts_of_lines_and_nodes_are_lower_limits() -> None:
    """They are journaled each half second: more may have been traced since."""
    seen = Observation(steps={"line": 1, "node": 4})
    assert location.how_far(seen) == "so far at least 1 line traced, at least 4 nodes lowered"


def test_a_claim_says_how_it_is_checked() -> None:
    """The file of the pack has the evidence and the checks, in words too."""
    row = claim("It fails.", VERDICT, Check("fails", {"of": "program"})).to_json()
    assert json.loads(json.dumps(row)) == {
        "text": "It fails.",
        "about": "the captured run",
        "evidence": "verdict.json",
        "checks": [{"how": "fails", "words": HOW["fails"], "of": "program"}],
    }


def test_public_templates_print_only_claims_and_quotations() -> None:
    """A text without evidence is an error, with and without a filter."""
    env = markdown.claims_environment(jinja2.DictLoader({}))
    said = claim("It #1 fails.", VERDICT)
    for template in ("{{ x }}", "{{ x | one_line(9) }}", "{{ [x] | claims(9) }}"):
        assert env.from_string(template).render(x=said)
        with pytest.raises(TypeError, match="without evidence"):
            env.from_string(template).render(x="plain text")
    assert env.from_string("{{ x | fence('text') }}").render(x="a log") == "```text\na log\n```"


LABELS = {
    "### 🐛 Describe the bug", "### Describe the bug", "### Error logs", "### Versions",
    "### Environment details", "Run it with `python repro.py`.", "Environment variables:",
    "CPU seconds of the compile, one run for each size. The laws are fitted; the intervals of"
    " predictions are in brackets:", "Configuration of the captured run that is not torch's default:",
    "Stack of the thread at work, innermost frame last (", "`TORCH_TRACE` for tlparse:",
    "in the attached tarball", ", and", "more beside it", "Output of the captured run",
    "The last", "lines of stderr:", "Output of torch.utils.collect_env", "How it was found",
    "Repro: repro.py in the pack (", "); with", "characters it is too long for this text.", "Repro (",
    "| torch | answer |", "):",
}  # fmt: skip
"""The fixed words of public templates: headings, and names of what follows."""


def test_the_fixed_words_of_public_templates_state_nothing() -> None:
    """A new sentence in a template is a claim that nobody checks."""
    env = markdown.claims_environment(jinja2.DictLoader({}))
    for path in sorted((ROOT / "templates" / "issue").glob("*.j2")):
        for _, kind, text in env.lex(path.read_text(encoding="utf-8")):
            if kind != "data":
                continue
            text = re.sub(r"<!--.*?-->|</?\w+>", "\n", text, flags=re.DOTALL)
            for line in filter(None, (row.strip(" |-.>") for row in text.splitlines())):
                assert any(line in label for label in LABELS), (path.name, line)
