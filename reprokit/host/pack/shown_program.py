"""Which program a pack shows: the smallest one that was proved, or a candidate and why nothing has
proved it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.records.kinds import kind_named
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.reduce import assertions, readable
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.minimize import minimization, program_source, proof, proven
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proven import Candidate, Repro
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import deletion, files

FOLDER, FILE = "candidate", "candidate.json"
SLOWER = 4.0
"""A fresh run may take this many times as long as the run that failed."""
NO_CHECK = "it has no check of its own that fails"


@dataclass(frozen=True)
class RecordedProof:
    """A program that a run recorded, and what fresh processes said of it."""

    text: str
    about: str
    proof: proof.Proof | None
    unproved: str = ""
    """Why it is not proved, where more is known than the proof tells."""

    def program(self) -> Repro | Candidate:
        """The program as what its proof makes it."""
        told = (
            f"{self.about}; {proven.why_not_proven(self.proof)}"
            if self.proof and self.proof.hits
            else self.about
        )
        return proven.classify_program(self.text, told, self.proof, self.unproved)


@dataclass(frozen=True)
class ShownProgram:
    """What of the programs enters a pack; all texts are redacted."""

    program: Repro | Candidate
    original: str = ""
    """The target as a program of its own, where the other one was cut out of it."""
    missing: tuple[Missing, ...] = ()


def choose_program(
    request: Request,
    verdict: Verdict,
    seen: Observation,
    journals: Journals,
    run_path: Path,
    small: MinimizeResult | None,
    redactor: Redactor,
) -> ShownProgram:
    """The repro, if a program was proved; else the best candidate, with the reason why it is no
    repro.
    """
    try:
        script, missing = program_source.make_program(request, seen, journals, run_path)
    except Exception as problem:  # the journal may hold anything
        script, missing = (
            program_source.ProgramScript(),
            [Missing(run_names.CANDIDATE_FILE, f"it could not be made: {problem!r}")],
        )
    text = redactor.python(script.text)
    if verdict.kind == "ok":
        return ShownProgram(Candidate("", "", "nothing failed"), text, tuple(missing))
    if small is not None and small.is_proved:
        return ShownProgram(small.program(), text)
    tried = load_recorded(run_path)
    program = tried.program() if tried else None
    if not isinstance(program, Repro) and small is not None and small.text:
        return ShownProgram(_hidden(small.program(), redactor), text, tuple(missing))
    if program is None:
        why = (
            _untried(request, verdict)
            if text
            else "; ".join(m.why for m in missing) or "no program was recorded"
        )
        program = Candidate(text, script.about, why)
    return ShownProgram(_hidden(program, redactor), missing=tuple(missing))


def _hidden(program: Repro | Candidate, redactor: Redactor) -> Repro | Candidate:
    """Without what is private; the text is so already, and a repro's is the very text that was
    run.
    """
    if isinstance(program, Repro):
        return program
    return dataclasses.replace(program, why=redactor.text(program.why))


def _untried(request: Request, verdict: Verdict) -> str:
    if why := minimization.why_not(verdict):
        return why
    said = "no fresh process has run it"
    return said if request.minimizes else f"--no-minimize: {said}"


def try_recorded(
    request: Request, case: minimization.MinimizeCase, journals: Journals, redactor: Redactor
) -> None:
    """Run the program that was recorded as a repro is run, and keep what that came to.

    For a failure of which no smaller program was proved. It costs one watched run, ``--proofs``
    plain ones and one in eager.
    """
    folder = case.run_path / FOLDER
    deletion.delete(folder, inside=case.run_path)
    script, _ = program_source.make_program(request, case.seen, journals, case.run_path)
    text, about = script.text, script.about
    if script.is_graph:  # with the backend and the options that it was compiled with
        text = next(
            (start.text for start in minimization.starts_of(case) if start.graph is not None), text
        )
    if not text:
        return
    text, has_check = _checking(text, case)
    text = redactor.python(text)
    folder.mkdir()
    found, why = None, NO_CHECK
    if has_check:
        limits = minimization.limits_of(case).eased()
        if case.verdict.kind != "hang":  # the whole target takes as long as it took
            limits = dataclasses.replace(
                limits, deadline_s=max(limits.deadline_s, SLOWER * case.seen.seconds)
            )
        found = proof.prove_program(
            text, case.python, folder, case.signature, limits, runs=case.proofs, tries=1
        )
        is_values = (
            script.is_graph
            and case.verdict.kind == "wrong-result"
            and found.answer == same_failure.PASSES
        )
        about_values = (
            f"with inputs made anew it passes: {proven.VALUES}, or on what runs around the graph"
        )
        why = about_values if is_values else ""
    row = {"text": text, "about": about, "proof": to_json(found), "unproved": why}
    files.write_json(folder / FILE, row)


def _checking(text: str, case: minimization.MinimizeCase) -> tuple[str, bool]:
    """The program with what makes it fail by itself, and whether it can: only some kinds need
    that.
    """
    kind, seen = case.verdict.kind, case.seen
    if kind == "wrong-result":
        told = seen.comparison
        flat = readable.flatten_calls(text)
        found = (
            assertions.with_check(flat, told.wrong, told.is_random) if told is not None else flat
        )
        return (found, True) if found != flat else (text, False)
    if kind == "superlinear-compile":
        return text, False
    if not kind_named(kind).is_silent:
        return text, True
    graphs = sum(g.level == "dynamo" for g in seen.graphs) - sum(r.count for r in seen.recompiled)
    return assertions.fail_loudly(readable.flatten_calls(text), kind, max(1, graphs)), True


def load_recorded(run_path: Path) -> RecordedProof | None:
    """What :func:`try_recorded` left in a run directory."""
    told: dict[str, Any] = files.read_object(run_path / FOLDER / FILE)
    if not isinstance(told.get("text"), str):
        return None
    return RecordedProof(
        told["text"],
        str(told.get("about")),
        proof.read_proof(told.get("proof")),
        str(told.get("unproved") or ""),
    )
