"""Run the programs that records of torch have, in the jail, and compare what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprokit.core.judge.stacks.phases import COMPILE_PHASES
from reprokit.core.records.finding import identity_of_title
from reprokit.core.reported import answers, graph_programs, recorded_verdict
from reprokit.core.reported.issue_programs import FoundProgram
from reprokit.core.reported.made_programs import MadeProgram
from reprokit.core.reported.recorded_verdict import RecordedVerdict
from reprokit.core.reported.reported_failure import ReportedCommand, ReportedFailure
from reprokit.core.reported.trace_records import RunRecord
from reprokit.core.shared.source import process_group
from reprokit.host.scrub import read_records, run_issue
from reprokit.host.scrub.jail import Jail
from reprokit.host.scrub.read_records import Records
from reprokit.host.scrub.run_issue import IssueProgram, Say, ScrubResult
from reprokit.host.system import private_names


def verdict_of(records: Records) -> RecordedVerdict:
    """Return what the records show, before anything is run."""
    if records.runs:
        return recorded_verdict.judge_records([_redacted(run) for run in records.runs])
    names = ", ".join(dict.fromkeys(records.sources))
    checks = any(program.checks_accuracy for program in records.programs)
    return RecordedVerdict(
        "unknown",
        f"{names} has a graph; only a run shows how it fails",
        missing=("the failure: running the program may show it",),
        reported=ReportedFailure("wrong-result" if checks else ""),
    )


def _redacted(run: RunRecord) -> RunRecord:
    """Return a record whose messages are redacted, before a part of a secret is cut off or changed
    and no rule knows it any more.
    """
    redact = private_names.get_redactor().redact_text
    compiles = {
        cid: replace(row, message=redact(row.message), traceback=redact(row.traceback))
        if row.error
        else row
        for cid, row in run.compiles.items()
    }
    error, difference = run.error, run.difference
    if error is not None:
        error = replace(error, message=redact(error.message), traceback=redact(error.traceback))
    if difference is not None:
        difference = replace(
            difference, expected=redact(difference.expected), got=redact(difference.got)
        )
    return replace(run, compiles=compiles, error=error, difference=difference)


def programs_of(
    records: Records, verdict: RecordedVerdict, gpu: Mapping[str, Any] | None = None
) -> list[IssueProgram]:
    """Return the programs that may show the failure, the one with public functions first.

    With ``gpu`` they are compiled for that simulated GPU, on which nothing runs.
    """
    found: list[MadeProgram] = []
    failed = verdict.failed
    if failed is not None and verdict.kind == "recompile-limit":
        for run in records.runs:
            row = run.failed
            if row is not None and (row.cid, row.call) == (failed.cid, failed.call):
                found += graph_programs.programs_of_limit(row, run)
                break
    elif failed is not None:
        found += graph_programs.programs_of_compile(failed)
    elif verdict.has_compiled:  # compiled code may fail, or compute something wrong
        calls = [run.call for run in records.runs if run.call]
        found += [MadeProgram(text, graph_programs.CALL) for text in calls[:1]]
        found += graph_programs.programs_of_compiles(
            [row for run in records.runs for row in run.compiles.values()]
        )
    if not records.runs:
        found += records.programs
    rows = [
        IssueProgram(
            program.made_from,
            FoundProgram(program.factory if gpu is not None else program.text, ()),
            ReportedCommand({}),
            replace(verdict.reported, kind="wrong-result")
            if program.checks_accuracy
            else verdict.reported,
            gpu=gpu,
        )
        for program in found
        if gpu is None or program.factory
    ]
    if records.exported is not None and gpu is None:
        rows.append(
            IssueProgram(
                "the exported program",
                FoundProgram(read_records.EXPORTED, ()),
                ReportedCommand({}),
                verdict.reported,
                ((read_records.EXPORTED_FILE, records.exported),),
            )
        )
    return rows


def run_programs(
    programs: Sequence[IssueProgram],
    verdict: RecordedVerdict,
    jail: Jail,
    folder: Path,
    python: str,
    say: Say,
    budget_s: float,
) -> tuple[IssueProgram, ScrubResult]:
    """Run the programs until one fails as recorded; return the one that counts. ``budget_s`` limits
    each reduction.

    A graph that was compiled in the record and is not compiled here has a failure that the record
    has not, so it has no repro.

    Raises CannotInstall for an interpreter without torch.
    """
    issue, result = run_issue.run_programs(programs, jail, folder, [python], say, budget_s)
    (first, *_) = result.runs
    phase = identity_of_title(first.why).phase
    if verdict.has_compiled and first.answer == answers.FAILS and phase in COMPILE_PHASES:
        why = f"it fails in the compiler, which the recorded one did not: {first.why}"
        result = ScrubResult((replace(first, answer=answers.DIFFERENT, why=why),))
    return issue, result


def answer_of(result: ScrubResult, verdict: RecordedVerdict) -> str:
    """Return the answer of the first torch. A program that runs to its end passes, if the record
    has no failure.
    """
    run = result.runs[0]
    ends = run.answer == answers.CANNOT_TELL and run.why.startswith("it runs to its end")
    return answers.PASSES if ends and not verdict.is_failure else run.answer


def in_words(issue: IssueProgram, result: ScrubResult, verdict: RecordedVerdict) -> str:
    """Return what the first torch did with the program, beside the record."""
    run, answer = result.runs[0], answer_of(result, verdict)
    gpu = " for a simulated GPU" if issue.gpu is not None else ""
    if answer == answers.PASSES:
        is_rank = process_group.needs_process_group(issue.program.text)
        alone = " and without the other ranks" if is_rank else ""
        return f"runs to its end here with torch {run.torch}, with random inputs{alone}"
    what = {
        answers.FAILS: "fails here" + " in the same way" * bool(verdict.reported.kind),
        answers.DIFFERENT: "fails here in a different way",
    }.get(answer, "cannot tell")
    why = why_of(result).replace("it fails, but not as the record shows: ", "")
    return f"{what}{gpu} with torch {run.torch}: {why}"


def why_of(result: ScrubResult) -> str:
    """Return why the first torch has its answer, in words for a record."""
    return result.runs[0].why.replace("the issue reports", "the record shows")
