"""The JSON Schema of what each command prints with ``--json``, from the types of the documents."""

from __future__ import annotations

from typing import Any

import msgspec

from reprokit.cli.documents import (
    capture_documents,
    error_documents,
    known_documents,
    nightly_documents,
    pack_documents,
    record_documents,
    scrub_documents,
    study_documents,
)
from reprokit.core.shared.simulation import Gpu
from reprokit.host.hunt import families
from reprokit.host.nightly import night_report_model

DIALECT = "https://json-schema.org/draft/2020-12/schema"
VERSION = 1
"""The value of the key ``schema`` of each document."""
ERRORS = error_documents.ErrorDocument
DOCUMENTS: dict[str, tuple[type, ...]] = {
    "ablate": (study_documents.AblateDocument,),
    "attach": (capture_documents.AttachDocument,),
    "bisect": (study_documents.BisectDocument, study_documents.GitBisectDocument),
    "capture": (
        capture_documents.CaptureDocument,
        capture_documents.RefusedCaptureDocument,
        record_documents.RecordDocument,
    ),
    "check": (study_documents.CheckDocument,),
    "conditions": (study_documents.ConditionsDocument,),
    "env": (pack_documents.EnvironmentDocument, pack_documents.HooksDocument, Gpu),
    "hunt": (families.HuntDocument,),
    "issue": (
        pack_documents.IssueDocument,
        pack_documents.NoIssueDocument,
        pack_documents.WrittenTestsDocument,
    ),
    "kernel": (study_documents.KernelDocument,),
    "known": (
        known_documents.KnownDocument,
        known_documents.KnownEntriesDocument,
        known_documents.ProvedEntriesDocument,
    ),
    "mcp": (pack_documents.ToolsDocument,),
    "merge": (capture_documents.MergedRanksDocument,),
    "minimize": (study_documents.MinimizeDocument,),
    "models": (
        pack_documents.ModelsDocument,
        pack_documents.ModelTypesDocument,
        pack_documents.ModelTypeDocument,
    ),
    "nightly export": (nightly_documents.ExportedRow, nightly_documents.CatalogueDocument),
    "nightly import": (nightly_documents.ImportDocument,),
    "nightly init": (nightly_documents.InitDocument,),
    "nightly merge": (nightly_documents.MergeDocument,),
    "nightly mute": (nightly_documents.MuteDocument,),
    "nightly prune": (nightly_documents.PruneDocument,),
    "nightly report": (night_report_model.NightReport,),
    "nightly run": (
        night_report_model.NightResult,
        nightly_documents.FailedNightDocument,
    ),
    "nightly split": (nightly_documents.SplitDocument,),
    "pack": (capture_documents.CaptureDocument,),
    "replay": (study_documents.ReplayDocument,),
    "scale": (
        capture_documents.ScaleDocument,
        capture_documents.RefusedScaleDocument,
    ),
    "scrub": (scrub_documents.ScrubDocument, scrub_documents.UnreadIssueDocument),
    "show": (
        pack_documents.ShowDocument,
        pack_documents.ShownFileDocument,
        pack_documents.ShownTraceDocument,
    ),
    "watch": (capture_documents.WatchDocument,),
    "workarounds": (study_documents.WorkaroundsDocument,),
}
"""The documents of each command, without the error that each may print instead."""


def schema_of_command(command: str) -> dict[str, Any]:
    """Return the JSON Schema of a command, such as ``nightly run``."""
    kinds = (*DOCUMENTS[command], ERRORS)
    references, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "$id": f"urn:reprokit:schema:{VERSION}:{command.replace(' ', '-')}",
        "title": f"reprokit {command} --json",
        "anyOf": list(references),
        "$defs": parts,
    }


def schema_of_all() -> dict[str, Any]:
    """Return one JSON Schema for all commands.

    ``$defs`` has an entry for each, such as ``reprokit-nightly-run``.
    """
    kinds = dict.fromkeys(kind for row in DOCUMENTS.values() for kind in row) | {ERRORS: None}
    references, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    found = dict(zip(kinds, references, strict=True))
    commands = {
        f"reprokit-{command.replace(' ', '-')}": {
            "title": f"reprokit {command} --json",
            "anyOf": [found[kind] for kind in (*row, ERRORS)],
        }
        for command, row in DOCUMENTS.items()
    }
    return {
        "$schema": DIALECT,
        "$id": f"urn:reprokit:schema:{VERSION}",
        "title": "reprokit --json",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in commands],
        "$defs": {**commands, **parts},
    }
