"""The checks of statements that people see of a capture, for those that no claim of an issue has."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprokit.host.catalogue import catalogue_files

from .claim_checks import (
    COMPARED,
    FALSE,
    TRUE,
    UNCHECKED,
    Check,
    Checker,
    as_answer,
    check_fails,
    fixed_words,
    is_failure,
    main_threads,
)
from .claim_runs import HANGS, DraftedIssue
from .record_checks import check_issue, check_own_code, files_named

FILES_OF_PHASE: Mapping[str, str] = {
    "dynamo-trace": r"torch/_dynamo/",
    "guards": r"torch/_dynamo/(guards|.*guard)",
    "export": r"torch/_?export/",
    "aot": r"torch/_functorch/|torch/_subclasses/|torch/_dynamo/backends/",
    "partition": r"torch/_functorch/(partitioners|_activation_checkpointing)",
    "fx-passes": r"torch/_inductor/(fx_passes|pattern_matcher|constant_folding|freezing|compile_fx)",
    "lowering": r"torch/_inductor/",
    "scheduler": r"torch/_inductor/(scheduler|memory|comms|dependencies)",
    "codegen": r"torch/_inductor/(codegen|scheduler|graph|codecache|loop_body)",
    "cpp-build": r"torch/_inductor/(cpp_builder|cpu_vec_isa|codecache|async_compile)|CppCompileError|cc1plus|g\+\+",
    "worker-wait": r"torch/_inductor/(async_compile|compile_worker)",
    "backend": r"torch/_(dynamo|inductor)/",
    "collective": r"torch/distributed/|wait_tensor",
}  # fmt: skip
"""Phase -> what the traceback or the stacks of a run in it have."""
PARTS = ("dynamo", "aot", "decompositions", "inductor")
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
"""The backend that adds each part."""
PROGRAM = {"about": "the program of the pack", "text": ""}


def _check_kind(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    """Check the kind by a plain run, and the phase by the files of its traceback or stacks."""
    kind, phase = check.get("kind"), check.get("phase")
    verdict = drafted.verdict
    compares = verdict["kind"] in COMPARED
    done = drafted.run(compares=compares)
    if done is None:
        return UNCHECKED
    if kind is not None:
        is_same = is_failure(drafted, done) if kind == verdict["kind"] else False
        if not is_same or not phase:
            return as_answer(is_same)
    if not phase:
        return as_answer(not verdict["phase"])
    if phase in PARTS and verdict["kind"] != "exception":
        return _part(drafted, claim, phase)
    if phase == "guards" and verdict["kind"].startswith("recompile"):
        return as_answer("Recompiling function " in done.text)
    pattern = FILES_OF_PHASE.get(phase)
    if pattern is None or verdict["kind"] not in ("exception", *HANGS):
        return TRUE if kind is not None else UNCHECKED
    text = "\n".join([done.text, *map(main_threads, done.stacks), *done.stacks])
    return as_answer(bool(re.search(pattern, text)))


def _check_command(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    """Check that ``cd FOLDER && reprokit capture -- COMMAND`` is the folder and the command."""
    _, folder, *words = check["words"]
    command = drafted.request["target"]["command"]
    is_same = words[words.index("--") + 1 :] == command
    return as_answer(is_same and Path(folder).resolve() == drafted.folder.resolve())


def _part(drafted: DraftedIssue, claim: Mapping[str, Any], part: str) -> str:
    """Check that the first backend that fails is that of a part of torch."""
    place = PARTS.index(part)
    answers = [
        check_fails(drafted, claim, {"how": "fails", "compile": {"backend": backend}})
        for backend in BACKENDS[max(place - 1, 0) : place + 1]
    ]
    if UNCHECKED in answers:
        return UNCHECKED
    return as_answer(answers[-1] == TRUE and answers[:-1] in ([], [FALSE]))


def _check_heading(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    _, colon, cause = check["words"].partition(": ")
    return _cause(drafted, cause if colon else "")


def _check_cause(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    cause, _, detail = check["cause"].partition(": ")
    return next((a for part in (cause, detail) if (a := _cause(drafted, part)) != TRUE), TRUE)


def _cause(drafted: DraftedIssue, cause: str) -> str:
    kind = drafted.verdict["kind"]
    compares = kind in COMPARED
    done = drafted.run(compares=compares)
    is_same = is_failure(drafted, done)
    if done is None or not is_same:
        return as_answer(is_same)
    if cause.startswith("SIG"):
        return as_answer(done.status == -getattr(signal, cause.split(":")[0], 0))
    if kind in ("exception", "error-in-eager", "graph-break"):
        output = " ".join(done.text.replace("`", "").split())
        pieces = fixed_words(cause.replace("`", ""))
        return as_answer(all(" ".join(piece.split()) in output for piece in pieces))
    return TRUE


def _check_reason(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    words = check["words"]
    if match := re.match(
        r"(\S+) was raised(?:, in phase [\w-]+)?(?: \([^)]*\))?(?:: (.*))?", words
    ):
        parts = [_cause(drafted, (part or "").rstrip(".")) for part in match.groups()]
        return FALSE if FALSE in parts else UNCHECKED if UNCHECKED in parts else TRUE
    return _cause(drafted, "")


def _check_known(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    if check["issues"]:
        if drafted.entry is not None:
            return as_answer(drafted.entry.issue in check["issues"])
        answers = [check_issue(drafted, claim, {"issue": issue}) for issue in check["issues"]]
        return TRUE if TRUE in answers else UNCHECKED
    if drafted.entry is not None and drafted.entry.issue.startswith("hunt#"):  # no public issue
        named = re.findall(r"hunt#\d+", check.get("title", drafted.entry.issue))
        return as_answer(drafted.entry.issue in named)
    if drafted.entry is not None:
        return FALSE
    title = json.loads((drafted.run_dir / "pack" / "signature.json").read_text())["title"]
    return as_answer(title.rpartition(" @ ")[2] not in _catalogue_text() or " @ " not in title)


@functools.cache
def _catalogue_text() -> str:
    folder = Path(catalogue_files.__file__).parent
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*.toml")))


def _path(drafted: DraftedIssue, name: str) -> Path:
    return drafted.folder / name


def _check_file(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    return as_answer(_path(drafted, check["file"]).exists())


def _check_no_repro(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    return as_answer(drafted.repro is None)


def _check_program(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    names = ("repro.py", "candidate.py")
    texts = [(drafted.run_dir / "pack" / name) for name in names]
    return as_answer(any(p.exists() and p.read_text() == check["text"] for p in texts))


def _check_repro(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    answer = check_fails(drafted, PROGRAM, {})
    return answer if check["is_all"] else UNCHECKED


def _check_repro_in_eager(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    answer = check_fails(drafted, PROGRAM, {"without_compile": True})
    return {TRUE: FALSE, FALSE: TRUE}.get(answer, UNCHECKED)


def _check_versions(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    known = {}
    for name in ("torch", "triton"):
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    told = dict(re.findall(r"(torch|triton|Python) ([^,\s]+)", check["versions"]))
    known["Python"] = platform.python_version()
    system = re.search(r"system ([^,]+)", check["versions"])
    release = Path("/etc/os-release")
    is_system = not system or (release.exists() and system[1] in release.read_text())
    return as_answer(is_system and all(told[name] == known.get(name) for name in told))


def _check_signature(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    digest, _, title = check["words"].partition(" ")
    document = json.loads((drafted.run_dir / "pack" / "signature.json").read_text())
    text = f"{document['algorithm']}\n{document['title']}"
    is_title = title == " ".join(document["title"].split())
    return as_answer(hashlib.sha256(text.encode()).hexdigest()[:12] == digest and is_title)


def _check_responsible(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    place = drafted.verdict["responsible_place"]
    if check["party"] == "user" and re.search(r"\.py:\d+", place):
        return check_own_code(drafted, claim, {"place": place})
    if check["party"] == "torch":
        answer = check_fails(drafted, claim, {"how": "passes", "without_compile": True})
        return {TRUE: FALSE, FALSE: TRUE}.get(answer, UNCHECKED)
    return UNCHECKED


def _check_function(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    name = check["function"].rpartition(".")[2]
    found = files_named(drafted, check["file"])
    if not found:
        return UNCHECKED
    texts = (path.read_text(errors="replace") for path in found)
    return as_answer(name.startswith("<") or any(f"def {name}(" in text for text in texts))


def _check_without(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    """Check by a run whose observer of passes, or whose table of lowerings, leaves one out."""
    what = {"how": "fails", "without_application": [check["what"], check["name"]]}
    return {TRUE: FALSE, FALSE: TRUE}.get(check_fails(drafted, claim, what), UNCHECKED)


def _check_cause_in_words(drafted: DraftedIssue, claim: Mapping[str, Any], check: Check) -> str:
    return (
        as_answer(is_failure(drafted, drafted.run()))
        if drafted.verdict["kind"] in HANGS
        else UNCHECKED
    )


PRINTED_CHECKS: Mapping[str, Checker] = {
    "kind": _check_kind,
    "heading": _check_heading,
    "cause": _check_cause,
    "reason": _check_reason,
    "known": _check_known,
    "file": _check_file,
    "no repro": _check_no_repro,
    "program": _check_program,
    "repro": _check_repro,
    "repro in eager": _check_repro_in_eager,
    "versions": _check_versions,
    "signature": _check_signature,
    "responsible": _check_responsible,
    "function": _check_function,
    "without": _check_without,
    "cause in words": _check_cause_in_words,
    "command": _check_command,
}
