"""Capture from what torch wrote about a run: the verdict of the record, and a proved program."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprokit.cli.shared import consent, known_matches, out, terminal
from reprokit.cli.shared.summary import NAME_COLUMNS, TEXT_COLUMNS
from reprokit.core.judge.stacks.location import plural
from reprokit.core.shared.errors import BadInput
from reprokit.host.report.headline import MAX_COLUMNS, cut_at_word

if TYPE_CHECKING:
    from reprokit.core.reported.recorded_verdict import RecordedVerdict
    from reprokit.core.triage.known_failures import KnownMatch
    from reprokit.host.pack.reopen import OpenedPack
    from reprokit.host.run.run_directory import RunDir
    from reprokit.host.scrub.jail import Jail
    from reprokit.host.scrub.read_records import Records
    from reprokit.host.scrub.record_packs import SignedRecord
    from reprokit.host.scrub.run_issue import IssueProgram, ScrubResult

MAX_REPRO_LINES = 15
"""A longer repro is only named, not printed."""
MAX_FACTS, MAX_MISSING = 2, 2
"""Facts of the record, and lines of what is missing, so that all is in ten lines."""
AS_RECORDED = ", as recorded"


@dataclass
class _Answer:
    """What records show, and what their programs did here."""

    records: Records
    verdict: RecordedVerdict
    programs: Sequence[IssueProgram]
    why_not: str
    """Why no program ran; empty if one did."""
    signed: SignedRecord | None
    chosen: tuple[IssueProgram, ScrubResult] | None = None
    known: Sequence[KnownMatch] = ()
    pack: Path | None = None

    @property
    def opened(self) -> OpenedPack | None:
        """The pack of the program that counts."""
        failure = self.chosen[1].failure if self.chosen is not None else None
        return failure.opened if failure is not None else None


def are_records(target: str | None, rest: Sequence[str]) -> bool:
    """Return whether the words of a command line are files that torch wrote, and not a target."""
    from reprokit.core.reported import repro_programs
    from reprokit.core.shared.zoo import ZOO
    from reprokit.host.scrub import read_records
    from reprokit.host.system import host_log

    if target is None or target in ZOO or target.startswith("hf:"):
        return False
    path = Path(target)
    if not read_records.may_be_records(path) or not all(Path(word).exists() for word in rest):
        return False
    if path.suffix != ".py":
        return True
    with host_log.suppress(OSError):
        return repro_programs.is_repro_program(path.read_text("utf-8", "replace"))
    return False


def capture_records(
    paths: Sequence[Path],
    python: str,
    output_dir: Path | None,
    catalogues: tuple[Path, ...],
    budget_s: float,
    gpu_words: str | None,
    is_agreed: bool,
    as_json: bool,
) -> int:
    """Say what the records show, run their program in a jail with consent, and return the exit
    code. ``budget_s`` limits the reduction. ``gpu_words`` name a simulated GPU.
    """
    from reprokit.host.environment import agent_queries, simulated_gpu
    from reprokit.host.run import run_directory
    from reprokit.host.scrub import read_records, record_packs, run_records

    records = read_records.read_records(paths)
    if records.flight_records and not (records.runs or records.programs or records.exported):
        raise BadInput(
            "these are dumps of a flight recorder; run: reprokit merge"
            f" {shlex.join(map(str, paths))}"
        )
    verdict = run_records.verdict_of(records)
    gpu = simulated_gpu.parse_gpu_option(gpu_words) if gpu_words is not None else None
    if gpu is not None:
        agent_queries.check_simulation(python, gpu)
    programs = run_records.programs_of(records, verdict, gpu)
    answer = _Answer(
        records,
        verdict,
        programs,
        _why_not(verdict, programs, is_agreed),
        record_packs.sign_record(verdict),
    )
    if not as_json:
        _print_verdict(records, verdict)
    if answer.why_not and (programs or not verdict.needs_pack):
        answer.known = _known(answer, catalogues)
    else:
        run = run_directory.create_run_directory(output_dir, "record")
        try:
            with consent.deleted_if_refused(run):
                if not answer.why_not:
                    _run_programs(answer, run, python, budget_s, is_agreed, as_json)
                answer.known = _known(answer, catalogues)
                _leave_pack(answer, run)
        finally:
            run.release_lock()
    if as_json:
        out.RESULTS.print_json(_document(answer))
    else:
        _print_result(answer)
    return _exit_code(verdict, answer.chosen[1] if answer.chosen is not None else None)


def _run_programs(
    answer: _Answer, run: RunDir, python: str, budget_s: float, is_agreed: bool, is_quiet: bool
) -> None:
    """Run the programs in a jail, with consent."""
    from reprokit.host.bisect import torch_environments
    from reprokit.host.scrub import run_records

    try:
        with terminal.LiveStatus(is_quiet=is_quiet) as live:
            jail = consent.find_jail(run.path)
            _ask(answer.programs, jail, is_agreed, live)
            answer.chosen = run_records.run_programs(
                answer.programs,
                answer.verdict,
                jail,
                run.path,
                python,
                live.show_message,
                budget_s,
            )
    except torch_environments.CannotInstall as problem:
        raise BadInput(str(problem)) from problem
    except consent.NoConsent as problem:
        answer.why_not = str(problem)


def _leave_pack(answer: _Answer, run: RunDir) -> None:
    """Leave the pack of the program, or else that of the records, if they have a failure."""
    from reprokit.host.run import run_directory
    from reprokit.host.scrub import record_packs

    if answer.opened is not None:
        answer.pack = answer.opened.pack.path
    elif not answer.verdict.needs_pack:
        if answer.chosen is None:
            run.delete_run()
    else:
        try:
            answer.pack = record_packs.write_record_pack(
                answer.records, answer.verdict, answer.signed, _document(answer), run
            )
        except OSError as problem:
            raise run_directory.cannot_write(run.output, problem) from problem


def _why_not(verdict: RecordedVerdict, programs: Sequence[IssueProgram], is_agreed: bool) -> str:
    """Return why no program runs; empty if one does."""
    if not programs:
        if verdict.kind == "recompile-limit" and not verdict.missing:
            return "the record does not show all calls; run reprokit capture on the program"
        if verdict.is_failure:
            return "the record has no graph of the failure"
        return "the record has no graph"
    if not is_agreed and not sys.stdin.isatty():
        return "its program may be a stranger's; read it (--json) and add --yes to run it in a jail"
    return ""


def _ask(
    programs: Sequence[IssueProgram], jail: Jail, is_agreed: bool, live: terminal.LiveStatus
) -> None:
    """Show what would run, and ask for consent; raises NoConsent without it."""
    if is_agreed:
        return
    live.pause()
    out.PROGRESS.print_line(f"runs in {jail.description}:")
    for program in programs:
        out.PROGRESS.print_line(program.program.text)  # the whole text: any part of it may matter
    if not out.confirm_question("Run this?"):
        raise consent.NoConsent("nothing was run")
    live.resume()


def _known(answer: _Answer, catalogues: tuple[Path, ...]) -> list[KnownMatch]:
    if answer.opened is not None:
        return known_matches.find_known_of_pack(answer.opened, catalogues)
    signed = answer.signed
    if signed is None:
        return []
    return known_matches.find_known(signed.signature, signed.traits, catalogues)


def _exit_code(verdict: RecordedVerdict, result: ScrubResult | None) -> int:
    """Return 1 for a failure of the record or its program, 0 if neither has one, else 3."""
    from reprokit.core.reported import answers
    from reprokit.host.scrub import run_records

    answer = run_records.answer_of(result, verdict) if result is not None else ""
    fails = answer == answers.FAILS or (
        answer == answers.DIFFERENT and not verdict.has_compiled  # else the conversion fails
    )
    if verdict.is_failure or fails:
        return 1
    return 0 if verdict.has_compiled and answer in ("", answers.PASSES) else 3


def _row(name: str, text: str, max_lines: int = 1) -> None:
    """Print a fact in at most ``max_lines`` lines."""
    import textwrap

    lines = textwrap.wrap(
        out.one_line(text),
        TEXT_COLUMNS,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=max_lines,
        placeholder=" ...",
    )
    for label, line in zip((name, *[""] * max_lines), lines, strict=False):
        out.RESULTS.print_line(f"{label:<{NAME_COLUMNS}}{line}")


def _torch_of(records: Records) -> str:
    """Return the version of torch that wrote the records; empty if none says it."""
    versions = [run.torch for run in records.runs] + [one.torch for one in records.programs]
    return next(filter(None, versions), "")


def _print_verdict(records: Records, verdict: RecordedVerdict) -> None:
    from reprokit.core.records.verdict_kinds import kind_named

    colour = kind_named(verdict.kind).colour
    ending = AS_RECORDED if records.runs else ""
    columns = MAX_COLUMNS - len(verdict.kind) - len(ending)
    reason = cut_at_word(out.one_line(f": {verdict.reason}"), columns)
    out.RESULTS.print_line((verdict.kind, f"bold {colour}"), reason + ending)
    for name, text in verdict.rows[:MAX_FACTS]:
        _row(name, text)
    torch = _torch_of(records)
    count = len(records.runs)
    of = f" of {count} processes" if count > 1 else ""
    names = ", ".join(dict.fromkeys(records.sources))
    _row("record", f"{names}{of}{f', torch {torch}' if torch else ''}")


def _print_result(answer: _Answer) -> None:
    repro = answer.opened.repro if answer.opened is not None else ""
    if answer.chosen is not None:
        _print_program(answer.verdict, *answer.chosen)
    if not repro:
        rows = answer.verdict.missing[:MAX_MISSING]
        for text in rows:
            _row("missing", text, MAX_MISSING + 1 - len(rows))
        failure = answer.chosen[1].failure if answer.chosen is not None else None
        why_not = answer.why_not or (failure.unproven if failure is not None else "")
        _row("no repro", why_not or "the program does not show it")
    for match in answer.known[:1]:
        _row("known", match.sentence, 2)
    if answer.opened is not None and repro:
        lines = plural(len(repro.splitlines()), "line")
        _row("repro", f"{lines}, fails in {answer.opened.proof} fresh processes")
    if answer.pack is not None:
        path = shlex.quote(str(answer.pack))  # a path is never cut
        out.RESULTS.print_line(f"{'pack':<{NAME_COLUMNS}}{path}")
        out.RESULTS.print_line(f"{'next':<{NAME_COLUMNS}}reprokit show {path}")
    if repro and len(repro.splitlines()) <= MAX_REPRO_LINES:
        out.RESULTS.print_line("")
        out.RESULTS.print_text(repro)


def _print_program(verdict: RecordedVerdict, issue: IssueProgram, result: ScrubResult) -> None:
    """Print what a program did here."""
    from reprokit.host.scrub import jail, run_records

    _row("program", f"{issue.title}: {run_records.in_words(issue, result, verdict)}", 2)
    if issue.names_gpu and issue.gpu is None and not jail.has_gpu():
        _row("missing", "a GPU: --gpu h100 compiles the graph for a simulated one")


def _document(answer: _Answer) -> dict[str, Any]:
    """Return the JSON document. What the records say is redacted as in a pack."""
    from reprokit.host.scrub import run_records
    from reprokit.host.system import private_names

    redactor = private_names.get_redactor()
    records, verdict, chosen = answer.records, answer.verdict, answer.chosen
    signed = answer.signed.signature if answer.signed is not None else None
    document = {
        "kind": verdict.kind,
        "reason": verdict.reason,
        "sources": records.sources,
        "skipped": records.skipped,
        "torch": _torch_of(records),
        "facts": [{"name": name, "text": text} for name, text in verdict.rows],
        "missing": list(verdict.missing),
        "error": verdict.reported.error,
        "message": verdict.reported.message,
        "compiles": [
            {
                "rank": run.rank,
                "id": row.cid,
                "function": row.function,
                "place": row.place,
                "error": row.error,
                "seconds": row.seconds,
                "graph_breaks": [f"{one.place}: {one.reason}" for one in row.breaks],
                "recompiled_because": row.recompiled_because,
                "has_ended": row.has_ended,
            }
            for run in records.runs
            for row in run.compiles.values()
        ],
        "answer": run_records.answer_of(chosen[1], verdict) if chosen is not None else "",
        "why": run_records.why_of(chosen[1]) if chosen is not None else answer.why_not,
        "signature": (
            {"id": signed.id, "title": signed.title, "algorithm": signed.algorithm}
            if signed is not None
            else None
        ),
    }
    return {
        "schema": 1,
        "from_record": True,
        **redactor.redact_value(document),
        "programs": [
            {"source": one.title, "text": redactor.redact_python(one.program.text)}
            for one in answer.programs
        ],
        "repro": answer.opened.repro if answer.opened is not None else "",
        "pack": str(answer.pack) if answer.pack is not None else None,
        "known": [match.to_json() for match in answer.known],
    }
