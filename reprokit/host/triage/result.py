"""What a job leaves, as files that are there whole or not at all; a target can write there too, so nothing is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import files

SPEC, RESULT = "spec.json", "result.json"
SCHEMA = 1
HEALTHY = "ok"
NO_BUG = frozenset({HEALTHY, "unknown", ""})
"""Verdicts that sight nothing."""


def read_result(folder: Path) -> dict[str, Any]:
    """The result of a job; empty where there is none, or where what lies there is none."""
    told = files.read_object(folder / RESULT)
    return told if told and _is_result(told, files.read_object(folder / SPEC).get("key")) else {}


def _is_result(told: dict[str, Any], key: Any) -> bool:
    """It has the shape of what :func:`run_job` writes; a target can write there too."""
    attempts, found, expect = (told.get(name) for name in ("attempts", "minimized", "expect"))
    if told.get("schema") != SCHEMA or told.get("key") != key or not isinstance(attempts, list):
        return False
    if (
        not isinstance(expect, list)
        or not isinstance(told.get("problem"), str)
        or not isinstance(found, (dict, type(None)))
    ):
        return False
    if found and not all(isinstance(found.get(k), (str, type(None))) for k in ("signature", "text", "pack")):
        return False
    return _is_number(told.get("seconds")) and all(_is_attempt(one) for one in attempts)


def _is_attempt(told: Any) -> bool:
    if not isinstance(told, dict):
        return False
    parts = [told.get(name) for name in ("verdict", "signature", "traits", "phases")]
    if not all(isinstance(part, dict) for part in parts):
        return False
    verdict, signature, _, phases = (dict(part or {}) for part in parts)
    texts = [
        verdict.get("kind"),
        signature.get("id"),
        signature.get("title"),
        *map(told.get, ("torch", "triton", "pack")),
    ]
    numbers = [signature.get("algorithm"), *map(told.get, ("seconds", "compile_s", "peak_rss_bytes")), *phases.values()]
    return all(isinstance(t, (str, type(None))) for t in texts) and all(map(_is_number, numbers))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def give_up(folder: Path, why: str) -> None:
    """Leave a result for a job that has none and will get none."""
    key = files.read_object(folder / SPEC).get("key", "")
    told = {
        "schema": SCHEMA,
        "key": key,
        "expect": [],
        "folder": str(folder),
        "attempts": [],
        "minimized": None,
        "problem": why,
    }
    files.write_json(folder / RESULT, told)
