"""Judge the run directory of a capture again, and expect what the capture said."""

from __future__ import annotations

import json
from typing import Any

from .conftest import Done, reprokit


def assert_judged_alike(done: Done) -> None:
    """``reprokit pack RUN_DIR`` runs nothing of the target, and gives the same verdict, signature
    and evidence.
    """
    place = done.run_dir
    before = {
        name: json.loads((place / f"{name}.json").read_text())
        for name in ("verdict", "observation")
    }
    again = reprokit("pack", "--json", place)
    told = again.json
    assert told["run_dir"] == done.json["run_dir"]
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
        assert told[name] == done.json[name], name
    for name, record in before.items():
        differing = _differing(record, json.loads((place / f"{name}.json").read_text()))
        assert not differing, (name, differing)


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        key: (one.get(key), other.get(key))
        for key in {*one, *other}
        if one.get(key) != other.get(key)
    }
