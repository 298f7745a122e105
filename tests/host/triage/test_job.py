"""The result of one cell combines its captures and the minimization."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.cli.documents.capture_documents import refuse_capture
from reprokit.core.records.verdict_kinds import KINDS
from reprokit.host.nightly.jobs import job, job_result, job_schema

SPEC = {
    "schema": 1,
    "key": "k",
    "words": ["capture"],
    "target": ["--model", "x"],
    "python": "python",
    "cwd": "/",
    "retries": 1,
    "budget_s": 5,
    "limit_s": 60,
    "expect": ["ok"],
    "warms": False,
    "environment": {},
    "known": [],
    "settled": [],
    "limits": {},
}


def capture_result(kind: str, title: str, **more: Any) -> dict[str, Any]:
    return {
        "verdict": {"kind": kind},
        "signature": {"id": title.encode().hex()[-12:], "title": title, "algorithm": 7},
        "traits": {"kind": kind},
        "run_dir": "/run",
        "pack": "/plain.tar.gz",
        "seconds": 1.0,
        "missing": [],
        **more,
    }


@pytest.mark.parametrize(
    "known",
    [[], [capture_result("wrong-result", "wrong-result: no phase | numbers")["signature"]["id"]]],
)
def test_a_wrong_result_is_identified_by_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: list[str]
) -> None:
    """A plain capture does not locate the failure, so two of them would be one bug; the result of
    the ablation applies to all runs of the cell.
    """
    plain = capture_result("wrong-result", "wrong-result: no phase | numbers")
    where = capture_result(
        "wrong-result", "wrong-result: inductor | numbers @ acosh", pack="/small.tar.gz"
    )
    where["traits"] = {
        "kind": "wrong-result",
        "phase": "inductor",
        "operator": "acosh",
        "part": "inductor",
    }

    def call(words: list[str], *_: Any) -> tuple[str, str, int]:
        return json.dumps(where if words[0] == "minimize" else plain), "", 1

    monkeypatch.setattr(job, "_call_reprokit", call)
    (tmp_path / "spec.json").write_text(json.dumps({**SPEC, "known": known}))
    assert job.run_job(str(tmp_path))
    result = job_result.read_result(tmp_path, "k")
    assert result is not None and result.minimized is not None
    assert [a.signature.title for a in result.attempts] == [where["signature"]["title"]] * 2
    assert result.minimized.signature == where["signature"]["id"]
    first = result.attempts[0]
    assert (first.pack, first.traits["operator"]) == ("/small.tar.gz", "acosh")


def test_a_killed_job_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished capture is not repeated, and an interrupted capture leaves no result."""
    calls: list[str] = []
    ends = iter([capture_result("ok", "ok"), KeyboardInterrupt])

    def call(words: list[str], *_: Any) -> tuple[str, str, int]:
        calls.append(words[0])
        end = next(ends)
        if not isinstance(end, dict):
            raise end
        return json.dumps(end), "", 0

    monkeypatch.setattr(job, "_call_reprokit", call)
    # every run is slower than usual, so each is repeated
    spec = {
        **SPEC,
        "limits": {"compile_s": -1.0},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    with pytest.raises(KeyboardInterrupt):
        job.run_job(str(tmp_path))
    assert job_result.read_result(tmp_path, "k") is None
    ends = iter([capture_result("ok", "ok")])
    assert job.run_job(str(tmp_path))
    assert calls == ["capture"] * 3
    result = job_result.read_result(tmp_path, "k")
    assert result is not None and len(result.attempts) == 2


WORDS = st.none() | st.text(max_size=40)
NUMBERS = st.none() | st.floats(0, 1e6)
CAPTURES = st.fixed_dictionaries(
    {
        "verdict": st.fixed_dictionaries(
            {
                "kind": st.sampled_from(sorted(KINDS)),
                "phase": WORDS,
                "cause": WORDS,
                "reason": WORDS,
            }
        ),
        "signature": st.fixed_dictionaries(
            {
                "id": st.none() | st.text("0123456789abcdef", max_size=12),
                "title": WORDS,
                "algorithm": st.none() | st.integers(0, 99),
            }
        ),
        "traits": st.none() | st.dictionaries(st.text(max_size=9), WORDS | st.booleans()),
        "seconds": NUMBERS,
        "peak_rss_bytes": st.none() | st.integers(0, 1 << 40),
        "compile": st.none()
        | st.fixed_dictionaries(
            {"cpu_s": NUMBERS, "phases": st.dictionaries(st.text(max_size=9), st.floats(0, 1e6))}
        ),
        "run_dir": WORDS,
        "pack": WORDS,
        "versions": st.none() | st.dictionaries(st.sampled_from(["torch", "triton"]), WORDS),
        "missing": st.lists(st.fixed_dictionaries({"what": WORDS, "why": WORDS}), max_size=2),
    }
)
REFUSALS = st.builds(refuse_capture, st.sampled_from(["target", "usage", "machine"]), st.text())


@given(CAPTURES | REFUSALS | st.just({}), st.sampled_from([0, 1, 2, 3, 130, -9]), st.text())
def test_any_answer_of_a_capture_is_accepted(
    answer: dict[str, Any], status: int, last_line: str
) -> None:
    """A verdict of any kind, a refused target, and no answer at all."""
    fields = job._attempt_fields(json.dumps(answer), last_line, status)
    attempt = job_schema.convert_to_struct(fields, job_schema.JobAttempt)
    kind = (answer.get("verdict") or {}).get("kind")
    assert attempt.verdict.kind == kind and (kind or attempt.problem is not None)
    assert attempt.is_refused == (status == 2 and "error" in answer)


@given(CAPTURES | REFUSALS | st.just({}), st.text())
def test_any_answer_of_a_minimization_is_accepted(answer: dict[str, Any], last_line: str) -> None:
    """Also one without a signature."""
    fields = {"signature": None, **job._repro_fields(answer, last_line)}
    repro = job_schema.convert_to_struct(fields, job_schema.JobRepro)
    assert repro.pack == answer.get("pack")


@pytest.mark.parametrize("kind", ["error-in-eager", "unknown"])
def test_what_is_no_bug_of_the_compiler_is_captured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is not repeated and not minimized."""
    calls: list[str] = []

    def call(words: list[str], *_: Any) -> tuple[str, str, int]:
        calls.append(words[0])
        return json.dumps(capture_result(kind, f"{kind}: x")), "", 1

    monkeypatch.setattr(job, "_call_reprokit", call)
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    assert job.run_job(str(tmp_path))
    assert calls == ["capture"]
