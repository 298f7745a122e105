"""Read the JSON files of a pack as typed records, or refuse them in one line.

A stranger may have written them: a number may be a list, and a kind of failure may be a path. The
records of this module are safe to compute with, and safe as parts of file names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any

from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared import simulation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import from_json, hints
from reprokit.core.shared.errors import BadInput
from reprokit.host.pack import reader

MOST_SECONDS = 1e8
MOST_SIZE = 1_000_000_000
_KIND = re.compile(r"[a-z][a-z-]{0,39}")
_PARTY = re.compile(r"[a-z-]{0,40}")
_ID = re.compile(r"[0-9a-f]{4,64}")
_KERNEL = re.compile(r"[A-Za-z0-9_-]{1,150}\.py")
_SEEN = (
    "kernel",
    "seconds",
    "quiet_s",
    "endless_line",
    "graphs",
    "raised",
    "departs_in",
    "growth",
    "own_backend",
    "own_passes",
    "compile_failures",
)


def read_verdict(found: reader.PackFiles) -> Verdict:
    """``verdict.json``; its kind and party are single words."""
    read: Verdict = _record(found, run_names.VERDICT_FILE, Verdict)
    if not _KIND.fullmatch(read.kind) or not _PARTY.fullmatch(read.responsible):
        raise BadInput(
            f"{found.path} has a verdict.json that cannot be read: its kind or responsible is no"
            " word"
        )
    return read


def read_signature(found: reader.PackFiles) -> Signature:
    """``signature.json``."""
    read: Signature = _record(found, run_names.SIGNATURE_FILE, Signature)
    if not _ID.fullmatch(read.id):
        raise BadInput(
            f"{found.path} has a signature.json that cannot be read: its id is no digest"
        )
    return read


def read_observation(found: reader.PackFiles, judged: Verdict) -> Observation:
    """The fields of ``observation.json`` that a reduction needs."""
    told = found.json(run_names.OBSERVATION_FILE)
    kinds = hints(Observation)
    try:
        kept = {
            name: from_json(kinds[name], told[name]) for name in _SEEN if told.get(name) is not None
        }
        for name in ("seconds", "quiet_s"):
            if not 0 <= kept.get(name, 0.0) <= MOST_SECONDS:
                raise ValueError(f"{name} is no time")
    except ValueError as problem:
        raise BadInput(
            f"{found.path} has an observation.json that cannot be read: {problem}"
        ) from problem
    # a pack is minimized as one rank
    kept["graphs"] = tuple(
        dataclasses.replace(g, calls=(), rank="") for g in kept.get("graphs", ())
    )
    kept["growth"] = _growth(kept.get("growth", {}))
    if not _KERNEL.fullmatch(kept.get("kernel", "")):
        kept["kernel"] = ""
    return Observation(
        **kept,
        first_rung=judged.phase or "" if judged.kind == "wrong-result" else "",
        departs=judged.work.get("op", ""),
    )


def read_gpu_file(value: object) -> dict[str, Any] | None:
    """The GPU of ``run.json``."""
    with contextlib.suppress(BadInput):
        return (
            dataclasses.asdict(simulation.read_gpu(value, "the pack"))
            if isinstance(value, dict)
            else None
        )
    return None


def read_arguments(value: object) -> dict[str, Any]:
    """Arguments of torch.compile, which are scalars."""
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if isinstance(v, (str, bool, int, type(None)))}


def _record(found: reader.PackFiles, name: str, kind: type[Any]) -> Any:
    try:
        return from_json(kind, found.json(name))
    except ValueError as problem:
        raise BadInput(f"{found.path} has a {name} that cannot be read: {problem}") from problem


def _growth(told: dict[str, Any]) -> dict[str, Any]:
    """``growth`` with valid sizes and seconds; empty if there is none."""
    rows = told.get("sizes")
    sound = (
        [row for row in rows if isinstance(row, dict) and _is_sound(row)]
        if isinstance(rows, list)
        else []
    )
    knob = told.get("knob")
    return (
        {**told, "sizes": sound} if sound and isinstance(knob, str) and knob.isidentifier() else {}
    )


def _is_sound(row: dict[str, Any]) -> bool:
    size, spent, phases = row.get("size"), row.get("cpu_s"), row.get("phases", {})
    seconds: list[Any] = [spent, *phases.values()] if isinstance(phases, dict) else [None]
    return (
        type(size) is int
        and 0 < size <= MOST_SIZE
        and all(type(s) in (int, float) and 0 <= s <= MOST_SECONDS for s in seconds)
    )
