"""Judge the run directory of a capture again, and expect the same answer."""

from __future__ import annotations

import json
from typing import Any

from tests.support.reprokit_calls import CallResult, reprokit


def assert_judged_alike(done: CallResult) -> None:
    """Check that ``reprokit pack RUN_DIR``, which runs nothing of the target, gives the same verdict,
    signature and evidence.
    """
    run_dir = done.run_dir
    before = {
        name: json.loads((run_dir / f"{name}.json").read_text())
        for name in ("verdict", "observation")
    }
    again = reprokit("pack", "--json", run_dir)
    answer = again.json
    assert answer["run_dir"] == done.json["run_dir"]
    for name in (
        "verdict",
        "signature",
        "comparison",
        "ablation",
        "traits",
        "compile",
        "seconds",
        "peak_rss_bytes",
    ):
        assert answer[name] == done.json[name], name
    for name, record in before.items():
        differing = _differing(record, json.loads((run_dir / f"{name}.json").read_text()))
        assert not differing, (name, differing)


def _differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {
        key: (first.get(key), second.get(key))
        for key in {*first, *second}
        if first.get(key) != second.get(key)
    }
