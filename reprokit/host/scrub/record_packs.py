"""Pack the records of a failure that no program shows here: the redacted traces, and what they say.

The failure happened elsewhere, so the pack has no environment, no command and no issue.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit import __version__
from reprokit.core.judge import signature, verdict
from reprokit.core.judge.stacks import python_traceback
from reprokit.core.records.dumps import Link, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.reported.recorded_verdict import RecordedVerdict
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.triage.likeness import Traits
from reprokit.core.triage.traits import traits_of_failure
from reprokit.host.pack import contents, writer
from reprokit.host.report import markdown
from reprokit.host.report.template_files import markdown_templates
from reprokit.host.run.run_directory import RunDir
from reprokit.host.scrub.read_records import RAW_JSONL, Records
from reprokit.host.system import private_names

_PASSED_ON = frozenset(
    "Unsupported UserError TorchRuntimeError BackendCompilerFailed AssertionError IndexError"
    " ConstraintViolationError GuardOnDataDependentSymNode ValidationException"
    " UncapturedHigherOrderOpError BisectValidationException ShortenTraceback PackageError"
    " ResumePrologueTracingError".split()
)
_WITH_INNER = ("BackendCompilerFailed", "InductorError")
"""Errors that have the error of the backend in their message, and not as their cause."""
_INNER = re.compile(r"(?:backend=.{1,200} raised:\n)?([A-Za-z_][\w.]{0,200}): (.*)", re.DOTALL)


@dataclass(frozen=True)
class SignedRecord:
    """The failure of a record, as if the run had been captured."""

    verdict: Verdict
    signature: Signature
    traits: Traits


def sign_record(recorded: RecordedVerdict) -> SignedRecord | None:
    """Return the identity of the exception that a record has; None if it has no traceback."""
    raised = python_traceback.parse_traceback(recorded.traceback)
    if raised is None:
        return None
    if recorded.failed is not None:
        raised = _as_dynamo_raises(raised)
    seen = Observation(exit_status=1, is_command=True, has_instrumentation=True, raised=raised)
    judged = verdict.judge_run(seen)
    if judged.kind != recorded.kind:
        return None
    signed = signature.sign_verdict(judged, seen)
    traits = traits_of_failure(judged, seen, signed)
    # a record does not show who is responsible: it has no sources and no run without compiling
    return SignedRecord(judged, signed, dataclasses.replace(traits, responsible=""))


def _as_dynamo_raises(recorded: Raised) -> Raised:
    """Return the exception that the program sees. Dynamo records an exception, and raises a
    different one in its place, unless the type is one of a list (``_compile`` of
    ``torch/_dynamo/convert_frame.py`` in torch 2.13).
    """
    outer = recorded.chain[0]
    name = outer.type.rpartition(".")[2]
    if name in _WITH_INNER and (found := _INNER.match(outer.message)):
        return Raised((outer, Link(found[1], found[2], outer.frames)))
    if name in _PASSED_ON or outer.type.startswith("torch._inductor.exc."):
        return recorded
    message = f"{name}: {outer.message}"
    return Raised((Link("torch._dynamo.exc.InternalTorchDynamoError", message, outer.frames),))


def write_record_pack(
    records: Records,
    recorded: RecordedVerdict,
    signed: SignedRecord | None,
    document: Mapping[str, Any],
    run: RunDir,
) -> Path:
    """Write ``<run>/pack/`` and a tarball of the same files, and return the path of the tarball.

    ``document`` is the JSON document of the capture. Raises OSError if there is no room.
    """
    redactor = private_names.get_redactor()
    draft = writer.PackDraft()
    for path in records.traces:
        _add_trace(draft, path, redactor)
    draft.add_json(run_names.RECORD_FILE, redactor.redact_value(document))
    failure = signed.verdict if signed is not None else Verdict(recorded.kind, None, None, "")
    shown = {
        **to_json(failure),
        "reason": f"{recorded.reason}, as recorded",
        "responsible": "",
        "responsible_because": [],
        "responsible_place": "",
    }
    draft.add_json(run_names.VERDICT_FILE, redactor.redact_value(shown))
    if signed is not None:
        draft.add_json(run_names.SIGNATURE_FILE, redactor.redact_value(to_json(signed.signature)))
    contents.add_compile_pages(draft, draft.missing)
    writer.write_pack_folder(draft, run.path / run_names.PACK_FOLDER)
    missing = [*(Missing("record", text) for text in recorded.missing), *draft.missing]

    def readme(rows: list[tuple[str, str]], trimmed: list[str], hidden: str) -> str:
        return markdown.render_template(
            markdown_templates(),
            "record_readme.md.j2",
            reason=redactor.redact_text(recorded.reason),
            version=__version__,
            contents=rows,
            missing=redactor.redact_value(tuple(missing)),
            trimmed=trimmed,
            hidden=hidden,
        )

    name = f"reprokit-record-{recorded.kind}"
    digest = hashlib.sha256(str(document.get("reason")).encode("utf-8", "replace")).hexdigest()
    name += f"-{signed.signature.id if signed is not None else digest[:12]}"
    return writer.write_tarball(writer.build_tarball(draft, readme), run.output, f"{name}.tar.gz")


def _add_trace(draft: writer.PackDraft, path: Path, redactor: Redactor) -> None:
    """Add one redacted trace; a name that is there already gets a number."""
    stem = redactor.redact_file_name(path.name.removesuffix(".gz").removesuffix(".log"))
    names = (f"trace/{stem}{f'-{n}' if n else ''}.log" for n in range(len(draft.files) + 1))
    name = next(name for name in names if name not in draft.files)
    try:
        text = writer.read_middle_cut(path, writer.MAX_TRACE_BYTES, draft, name)
    except OSError as problem:
        draft.missing.append(Missing(name, str(problem)))
        return
    if path.name == RAW_JSONL:
        draft.missing.append(Missing("payloads", f"{RAW_JSONL} of tlparse has them in other files"))
    draft.add_text(name, redactor.redact_text(text))
