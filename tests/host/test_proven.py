"""A repro is a program that was run alone and failed in the same way; no other program can be
called or written as a repro.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.judge import same_failure
from reprokit.core.records.dumps import Link
from reprokit.core.records.verdict_kinds import KINDS
from reprokit.core.redaction.redactor import Redactor
from reprokit.host.minimize import minimize_result
from reprokit.host.minimize.proofs import proof, proven, stand_alone
from reprokit.host.pack import writer

TEXT = "import torch\ntorch.compile(print)()\n"

SILENT = {kind.name for kind in KINDS.values() if kind.is_silent}


def proved(text: str = TEXT, kind: str = "exception", **changes: Any) -> proof.Proof:
    """Return a proof with hits of a failure of ``kind``."""
    plain_proof = proof.Proof(
        same_failure.SAME,
        f"{kind}: codegen | KeyError",
        "0123456789ab",
        1,
        3,
        3,
        "passes",
        (1.0, 1.0, 1.0),
        proof.program_digest(text),
        kind in SILENT,
    )
    return dataclasses.replace(plain_proof, **changes)


REFUSED = {
    "no proof": (TEXT, None, "no fresh process has run it"),
    "no text": (" \n", proved(" \n"), "there is no program"),
    "another text": (TEXT + "# and more\n", proved(), "it is not the text that was run"),
    "an old proof without a digest": (TEXT, proved(digest=""), "it is not the text that was run"),
    "no hits": (
        TEXT,
        proved(hits=0, instead="KeyError: 'x'"),
        "none of 3 plain runs failed in the same way: KeyError: 'x'",
    ),
    "no plain runs": (
        TEXT,
        proved(runs=0, hits=0),
        "none of 0 plain runs failed in the same way: they passed",
    ),
    "it passes alone": (
        TEXT,
        proved(answer=same_failure.PASSES),
        "run alone in a fresh process it passes",
    ),
    "another failure": (
        TEXT,
        proved(answer=same_failure.OTHER, instead="NameError: x"),
        "does not fail in the same way: NameError: x",
    ),
    "no answer": (
        TEXT,
        proved(answer=same_failure.UNRESOLVED),
        "does not fail in the same way: exception: codegen",
    ),
    "another module": (
        TEXT,
        proved(needs="it imports mine"),
        "it is not self-contained: it imports mine",
    ),
    "a wrong result without an assertion": (
        TEXT,
        proved(kind="wrong-result", asserts=False),
        "none of 3 plain runs failed by itself, so only a comparison",
    ),
    "a wrong result in eager too": (
        TEXT,
        proved(kind="wrong-result", eager="AssertionError: no"),
        "does not hold without torch.compile: AssertionError: no",
    ),
    "graph breaks that nothing checks": (
        TEXT,
        proved(kind="graph-break", asserts=False),
        "reprokit observed it in a run of its own, but not in 3 plain runs, which ended with exit",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_was_not_proved_is_not_a_repro(name: str) -> None:
    """The record cannot be created, and the program is a candidate with a reason."""
    text, proof_of_text, why = REFUSED[name]
    with pytest.raises(proven.Unproven, match=re.escape(why)):
        proven.Repro(text, "", proof_of_text)  # type: ignore[arg-type]
    program = proven.classify_program(text, "a program", proof_of_text)
    assert isinstance(program, proven.Candidate) and why in program.why


answers = st.sampled_from(same_failure.ANSWERS)
kinds = st.sampled_from(["exception", "hang", *sorted(SILENT)])


@given(
    answers,
    kinds,
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "it reads /x"]),
)
def test_every_repro_has_hits_of_its_own_text(
    answer: str, kind: str, hits: int, asserts: bool, is_text: bool, needs: str
) -> None:
    """Whatever a proof contains, a repro has hits of its own text that fail by themselves."""
    proof_of_text = proved(kind=kind, answer=answer, hits=hits, asserts=asserts, needs=needs)
    program = proven.classify_program(TEXT if is_text else TEXT + "pass\n", "", proof_of_text)
    is_whole = (
        answer == same_failure.SAME
        and hits > 0
        and is_text
        and not needs
        and (asserts or kind not in SILENT)
    )
    assert isinstance(program, proven.Repro) == is_whole


def test_the_writer_accepts_only_a_proved_program() -> None:
    """A pack has repro.py with its proof, or no repro.py."""
    draft, redactor = writer.PackDraft(), Redactor()
    with pytest.raises(proven.Unproven):
        draft.add_text("repro.py", TEXT)
    assert not draft.files
    draft.add_repro(proven.Repro(TEXT, "", proved()), redactor)
    document = json.loads(draft.files["proof.json"])
    assert draft.files["repro.py"] == TEXT.encode() and document["hits"] == 3
    assert document["digest"] == proof.program_digest(draft.files["repro.py"].decode())


def test_the_repro_of_an_earlier_pack_is_removed(tmp_path: Path) -> None:
    """A run directory that is packed again without a proof no longer has repro.py."""
    draft = writer.PackDraft()
    draft.add_repro(proven.Repro(TEXT, "", proved()), Redactor())
    writer.write_pack_folder(draft, tmp_path)
    assert (tmp_path / "repro.py").exists()
    again = writer.PackDraft()
    again.add_text("candidate.py", TEXT)
    writer.write_pack_folder(again, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["candidate.py"]


def test_a_reduction_reports_the_result_of_its_proof() -> None:
    """The sentence says that the program is proved, or why not, with the reduction's reason if that
    is more specific.
    """
    small = minimize_result.MinimizeResult(TEXT, lines=2, is_complete=True, proof=proved())
    assert small.is_proved and small.describe().endswith(
        "the same failure in 3 of 3 fresh runs, eager passes"
    )
    small.proof = proved(kind="wrong-result", hits=0, asserts=False)
    small.unproved = f"with other values drawn it passes: {proven.DEPENDS_ON_VALUES}"
    assert not small.is_proved and small.has_shown and "values of the inputs" in small.why
    assert small.describe().endswith("; not proved")
    simulated = proven.describe_proof(proved(is_simulated=True))
    assert simulated == "the same failure in 3 of 3 fresh runs on a simulated GPU, eager passes"


def test_a_proof_is_restored_from_json() -> None:
    """A proof is restored from JSON, which may have keys of a later version or be invalid."""
    document = {**dataclasses.asdict(proved()), "later": 1}
    assert proof.parse_proof(json.loads(json.dumps(document))) == proved()
    assert proof.parse_proof({"hits": 3}) is None and proof.parse_proof("no") is None


def test_plain_runs_do_not_see_modules_of_the_user(tmp_path: Path) -> None:
    """PYTHONPATH keeps the folders of installed packages and the folders that customize every
    interpreter.
    """
    own, installed, site = tmp_path / "own", tmp_path / "installed", tmp_path / "site"
    for folder in (own / "package", installed / "thing-1.0.dist-info", site / "__pycache__"):
        folder.mkdir(parents=True)
    (own / "helper.py").touch()
    (own / "sitecustomize.py").touch()
    (site / "sitecustomize.py").touch()
    path = f"{own}:{installed}::{site}:{tmp_path / 'gone'}"
    assert stand_alone.plain_environment({"PYTHONPATH": path, "A": "1"}) == {
        "PYTHONPATH": f"{installed}:{site}",
        "A": "1",
    }
    assert stand_alone.plain_environment({"PYTHONPATH": str(own)}) == {}


def test_a_missing_dependency_of_a_program_is_named(tmp_path: Path) -> None:
    """The missing module or file is found in the exception or in the paths of the program."""
    lacks = Link("ModuleNotFoundError", "No module named 'helper.part'")
    assert (
        stand_alone.missing_dependency(lacks) == "it imports helper.part, which is not in the pack"
    )
    reads = Link("FileNotFoundError", "[Errno 2] No such file or directory: 'weights.pt'")
    assert stand_alone.missing_dependency(reads) == "it reads weights.pt, which is not in the pack"
    assert (
        stand_alone.missing_dependency(Link("KeyError", "'x'"))
        == stand_alone.missing_dependency(None)
        == ""
    )
    (tmp_path / "data.pt").touch()
    assert str(tmp_path / "data.pt") in stand_alone.user_file_named_in(
        f"import torch\ntorch.load({str(tmp_path / 'data.pt')!r})\n"
    )
    for text in (
        "x = '/no/such/file'",
        "x = '/dev/null'",
        "x = '/'",
        "x = 'a/b'",
        "def (",
        "x = '/\\0'",
    ):
        assert stand_alone.user_file_named_in(text) == "", text
