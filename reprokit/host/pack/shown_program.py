"""Choose the program of a pack: the smallest proved one, or a candidate with the reason why it is
not proved.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.reduce import assertions, loud_failures, readable, two_processes
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.minimize import cases
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs import proof, proven
from reprokit.host.minimize.proofs.proven import Candidate, Repro
from reprokit.host.minimize.starts import program_source
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import deletion, files

RECORDED_FOLDER, RECORDED_FILE = "candidate", "candidate.json"
MAX_SLOWDOWN = 4.0
"""A fresh run may take this many times as long as the run that failed."""
NO_CHECK = "it has no check of its own that fails"


@dataclass(frozen=True)
class RecordedProof:
    """A program that a run recorded, and its results in fresh processes."""

    text: str
    about: str
    proof: proof.Proof | None
    unproved: str = ""
    """Why it is not proved, if the reason is not in ``proof``."""

    def classified_program(self) -> Repro | Candidate:
        """Return the program as a repro if its proof succeeded, and otherwise as a candidate."""
        about = (
            f"{self.about}; {proven.describe_proof(self.proof)}"
            if self.proof and self.proof.hits
            else self.about
        )
        return proven.classify_program(self.text, about, self.proof, self.unproved)


@dataclass(frozen=True)
class ShownProgram:
    """The programs of a pack, with redacted texts."""

    program: Repro | Candidate
    original: str = ""
    """The target as a program, if ``program`` is a part of it."""
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
    """Return the repro if a program was proved. Otherwise return the best candidate, with the
    reason why it is not a repro.
    """
    try:
        script, missing = program_source.find_program_script(request, seen, journals, run_path)
    except Exception as problem:  # the journal may have any content
        script, missing = (
            program_source.ProgramScript(),
            [Missing(run_names.CANDIDATE_FILE, f"it could not be made: {problem!r}")],
        )
    text = redactor.redact_python(script.text)
    if verdict.kind == "ok":
        return ShownProgram(Candidate("", "", "nothing failed"), text, tuple(missing))
    if small is not None and small.is_proved:
        return ShownProgram(small.program(), text)
    recorded = load_recorded_proof(run_path)
    program = recorded.classified_program() if recorded else None
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
    """Redact the reason of a candidate. The text is already redacted, and that of a repro must not
    change.
    """
    if isinstance(program, Repro):
        return program
    return dataclasses.replace(program, why=redactor.redact_text(program.why))


def _untried(request: Request, verdict: Verdict) -> str:
    if why := cases.why_not_minimizable(verdict):
        return why
    reason = "no fresh process has run it"
    return reason if request.minimizes else f"--no-minimize: {reason}"


def prove_recorded_program(
    request: Request, case: cases.MinimizeCase, journals: Journals, redactor: Redactor
) -> None:
    """Run the recorded program in fresh processes, and save the result for
    :func:`load_recorded_proof`.

    This is for a failure without a smaller proved program. It starts one watched run, ``--proofs``
    plain runs and one in eager mode.
    """
    folder = case.run_path / RECORDED_FOLDER
    deletion.delete_path(folder, inside=case.run_path)
    script, _ = program_source.find_program_script(request, case.seen, journals, case.run_path)
    text, about = script.text, script.about
    if script.is_graph:  # use the program with the backend and the options of its compile
        text = next(
            (
                start.text
                for start in cases.starting_points_of_case(case)
                if start.graph is not None
            ),
            text,
        )
    if not text:
        return
    text, has_check = _checking(text, case)
    texts = redactor.redacted_programs(two_processes.with_writer(text, case.plan))
    text = texts[0]
    folder.mkdir()
    result, reason = None, NO_CHECK
    if case.plan is not None and case.plan.why_not:
        reason = case.plan.why_not
    elif has_check:
        limits = cases.probe_limits_of(case).relaxed()
        if case.verdict.kind != "hang":  # the whole target needs the time of the failing run
            limits = dataclasses.replace(
                limits, deadline_s=max(limits.deadline_s, MAX_SLOWDOWN * case.seen.seconds)
            )
        for text in texts:
            result = proof.prove_program(
                text,
                case.python,
                folder,
                case.signature,
                limits,
                proof.ProofRuns(case.proofs, max_tries=1, cores=case.processes_at_once),
            )
            if result.answer == same_failure.SAME:
                break
        assert result is not None
        is_values = (
            script.is_graph
            and kind_named(case.verdict.kind).compares_results
            and result.answer == same_failure.PASSES
        )
        about_values = (
            f"with new inputs it passes: {proven.DEPENDS_ON_VALUES}, or on the code around the"
            " graph"
        )
        reason = about_values if is_values else ""
    row = {"text": text, "about": about, "proof": to_json(result), "unproved": reason}
    files.write_json(folder / RECORDED_FILE, row)


def _checking(text: str, case: cases.MinimizeCase) -> tuple[str, bool]:
    """Return the program with a check that makes a silent failure visible, and whether that is
    possible. Other failures need no check.
    """
    kind, seen = case.verdict.kind, case.seen
    if kind_named(kind).compares_results:
        comparison = seen.comparison
        flat = readable.flatten_calls(text)
        checked = (
            assertions.with_check(flat, comparison.wrong, comparison.is_random)
            if comparison is not None
            else flat
        )
        return (checked, True) if checked != flat else (text, False)
    if kind == "superlinear-compile":
        return text, False
    if not kind_named(kind).is_silent:
        return text, True
    graphs = sum(g.level == "dynamo" for g in seen.graphs) - sum(r.count for r in seen.recompiled)
    return loud_failures.fail_loudly(readable.flatten_calls(text), kind, max(1, graphs)), True


def load_recorded_proof(run_path: Path) -> RecordedProof | None:
    """Return the result of :func:`prove_recorded_program` from a run directory."""
    row = files.read_json_object(run_path / RECORDED_FOLDER / RECORDED_FILE)
    if not isinstance(row.get("text"), str):
        return None
    return RecordedProof(
        row["text"],
        str(row.get("about")),
        proof.parse_proof(row.get("proof")),
        str(row.get("unproved") or ""),
    )
