"""One cell: what its captures and the look for a small program come to."""

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


def answer(kind: str, title: str, **more: Any) -> dict[str, Any]:
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
    "known", [[], [answer("wrong-result", "wrong-result: no phase | numbers")["signature"]["id"]]]
)
def test_a_wrong_result_is_called_by_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: list[str]
) -> None:
    """A plain capture does not ask, so two of them would be one bug; what the ladder says names all
    runs of the cell.
    """
    plain = answer("wrong-result", "wrong-result: no phase | numbers")
    where = answer("wrong-result", "wrong-result: inductor | numbers @ acosh", pack="/small.tar.gz")
    where["traits"] = {
        "kind": "wrong-result",
        "phase": "inductor",
        "operator": "acosh",
        "rung": "inductor",
    }

    def call(words: list[str], *_: Any) -> tuple[str, str, int]:
        return json.dumps(where if words[0] == "minimize" else plain), "", 1

    monkeypatch.setattr(job, "_reprokit", call)
    (tmp_path / "spec.json").write_text(json.dumps({**SPEC, "known": known}))
    assert job.run_job(str(tmp_path))
    told = job_result.read_result(tmp_path, "k")
    assert [a["signature"]["title"] for a in told["attempts"]] == [where["signature"]["title"]] * 2
    assert told["minimized"]["signature"] == where["signature"]["id"]
    first = told["attempts"][0]
    assert (first["pack"], first["traits"]["operator"]) == ("/small.tar.gz", "acosh")


def test_a_killed_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that has left its answer is not run again; an interrupted one leaves none."""
    calls: list[str] = []
    ends = iter([answer("ok", "ok"), KeyboardInterrupt])

    def call(words: list[str], *_: Any) -> tuple[str, str, int]:
        calls.append(words[0])
        end = next(ends)
        if not isinstance(end, dict):
            raise end
        return json.dumps(end), "", 0

    monkeypatch.setattr(job, "_reprokit", call)
    spec = {
        **SPEC,
        "limits": {"compile_s": -1.0},
    }  # every run is slower than usual, so it is run twice
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    with pytest.raises(KeyboardInterrupt):
        job.run_job(str(tmp_path))
    assert not job_result.read_result(tmp_path, "k")
    ends = iter([answer("ok", "ok")])
    assert job.run_job(str(tmp_path))
    assert calls == ["capture"] * 3
    assert len(job_result.read_result(tmp_path, "k")["attempts"]) == 2
