"""Read the JSON files of a pack as typed records, or refuse them with a message of one line.

A stranger may have written them: a list may be in place of a number, or a path in place of a kind.
The records of this module are safe for computations and in file names.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from reprokit.core.records.finding import Signature, Verdict, identity_of_title
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import FAILED_CHECK
from reprokit.core.shared import simulation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import field_types, from_json
from reprokit.core.shared.errors import BadInput
from reprokit.host.pack import reader
from reprokit.host.system import host_log

MAX_SECONDS = 1e8
MAX_SIZE = 1_000_000_000
_KIND = re.compile(r"[a-z][a-z-]{0,39}")
_PARTY = re.compile(r"[a-z-]{0,40}")
_ID = re.compile(r"[0-9a-f]{4,64}")
_KERNEL = re.compile(r"[A-Za-z0-9_-]{1,150}\.py")
_LOCATED = ("wrong-result", FAILED_CHECK)
"""Kinds whose phase is the part of the compiler where they begin."""
_SEEN = (
    "kernel",
    "seconds",
    "quiet_s",
    "endless_line",
    "graphs",
    "raised",
    "departs_in",
    "growth",
    "entry",
    "own_backend",
    "own_passes",
    "compile_failures",
)


def read_verdict(pack: reader.PackFiles) -> Verdict:
    """Read ``verdict.json``, whose kind and responsible party must be single words."""
    verdict: Verdict = _record(pack, run_names.VERDICT_FILE, Verdict)
    if not _KIND.fullmatch(verdict.kind) or not _PARTY.fullmatch(verdict.responsible):
        raise BadInput(
            f"{pack.path} has a verdict.json that cannot be read: its kind or responsible is not a"
            " word"
        )
    return verdict


def read_signature(pack: reader.PackFiles) -> Signature:
    """Read ``signature.json``, whose id must be a digest."""
    signature: Signature = _record(pack, run_names.SIGNATURE_FILE, Signature)
    if not _ID.fullmatch(signature.id):
        raise BadInput(
            f"{pack.path} has a signature.json that cannot be read: its id is not a digest"
        )
    # earlier versions wrote no parts, and a stranger may have changed them
    if signature.parts.title != signature.title:
        signature = dataclasses.replace(signature, parts=identity_of_title(signature.title))
    return signature


def read_observation(pack: reader.PackFiles, judged: Verdict) -> Observation:
    """Read the fields of ``observation.json`` that a reduction needs."""
    document = pack.read_json(run_names.OBSERVATION_FILE)
    kinds = field_types(Observation)
    try:
        kept = {
            name: from_json(kinds[name], document[name])
            for name in _SEEN
            if document.get(name) is not None
        }
        for name in ("seconds", "quiet_s"):
            if not 0 <= kept.get(name, 0.0) <= MAX_SECONDS:
                raise ValueError(f"{name} is not a time")
    except ValueError as problem:
        raise BadInput(
            f"{pack.path} has an observation.json that cannot be read: {problem}"
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
        failing_part=judged.phase or "" if judged.kind in _LOCATED else "",
        departs=judged.work.get("op", ""),
    )


def read_gpu_file(value: object) -> dict[str, Any] | None:
    """Return the GPU of ``run.json``; None if it is missing or invalid."""
    with host_log.suppress(BadInput):
        return (
            dataclasses.asdict(simulation.read_gpu(value, "the pack"))
            if isinstance(value, dict)
            else None
        )
    return None


def read_arguments(value: object) -> dict[str, Any]:
    """Return the scalar arguments of torch.compile."""
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if isinstance(v, (str, bool, int, type(None)))}


def _record(pack: reader.PackFiles, name: str, kind: type[Any]) -> Any:
    try:
        return from_json(kind, pack.read_json(name))
    except ValueError as problem:
        raise BadInput(f"{pack.path} has a {name} that cannot be read: {problem}") from problem


def _growth(document: dict[str, Any]) -> dict[str, Any]:
    """Return ``growth`` with its valid rows; empty if there is none."""
    rows = document.get("sizes")
    valid = (
        [row for row in rows if isinstance(row, dict) and _is_valid_row(row)]
        if isinstance(rows, list)
        else []
    )
    knob = document.get("knob")
    if not valid or not isinstance(knob, str) or not knob.isidentifier():
        return {}
    return {**document, "sizes": valid}


def _is_valid_row(row: dict[str, Any]) -> bool:
    size, spent, phases = row.get("size"), row.get("cpu_s"), row.get("phases", {})
    seconds: list[Any] = [spent, *phases.values()] if isinstance(phases, dict) else [None]
    return (
        type(size) is int
        and 0 < size <= MAX_SIZE
        and all(type(s) in (int, float) and 0 <= s <= MAX_SECONDS for s in seconds)
    )
