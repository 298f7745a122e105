"""The result of one cell combines its captures and the minimization."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.nightly.jobs import job, job_result

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
        "rung": "inductor",
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
