"""Capture from what torch wrote about a run: the verdict of the record, and a proved program."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
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
    from reprokit.host.scrub.jail import Jail
    from reprokit.host.scrub.read_records import Records
    from reprokit.host.scrub.run_issue import IssueProgram, ScrubResult

MAX_REPRO_LINES = 15
"""A longer repro is only named, not printed."""
FACTS_ALONE, FACTS_WITH_PROGRAM = 4, 2
"""Facts of the record that are printed, so that all is in ten lines."""
AS_RECORDED = ", as recorded"


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
    from reprokit.host.bisect import torch_environments
    from reprokit.host.environment import agent_queries, simulated_gpu
    from reprokit.host.run import run_directory
    from reprokit.host.scrub import read_records, run_records

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
    chosen: tuple[IssueProgram, ScrubResult] | None = None
    why_not = _why_not(verdict, programs, is_agreed)
    if not as_json:
        _print_verdict(records, verdict, FACTS_ALONE if why_not else FACTS_WITH_PROGRAM)
    if not why_not:
        run = run_directory.create_run_directory(output_dir, "record")
        try:
            with terminal.LiveStatus(is_quiet=as_json) as live, consent.deleted_if_refused(run):
                jail = consent.find_jail(run.path)
                _ask(programs, jail, is_agreed, live)
                chosen = run_records.run_programs(
                    programs, verdict, jail, run.path, python, live.show_message, budget_s
                )
        except torch_environments.CannotInstall as problem:
            raise BadInput(str(problem)) from problem
        except consent.NoConsent as problem:
            why_not = str(problem)
        finally:
            run.release_lock()
    result = chosen[1] if chosen is not None else None
    known = _known(result, catalogues)
    if as_json:
        out.RESULTS.print_json(_document(records, verdict, programs, chosen, why_not, known))
    else:
        _print_result(verdict, chosen, why_not, known)
    return _exit_code(verdict, result)


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


def _known(result: ScrubResult | None, catalogues: tuple[Path, ...]) -> list[KnownMatch]:
    opened = result.failure.opened if result is not None and result.failure is not None else None
    return known_matches.find_known_of_pack(opened, catalogues) if opened is not None else []


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


def _print_verdict(records: Records, verdict: RecordedVerdict, max_facts: int) -> None:
    from reprokit.core.records.verdict_kinds import kind_named

    colour = kind_named(verdict.kind).colour
    ending = AS_RECORDED if records.runs else ""
    columns = MAX_COLUMNS - len(verdict.kind) - len(ending)
    reason = cut_at_word(out.one_line(f": {verdict.reason}"), columns)
    out.RESULTS.print_line((verdict.kind, f"bold {colour}"), reason + ending)
    for name, text in verdict.rows[:max_facts]:
        _row(name, text)
    torch = _torch_of(records)
    count = len(records.runs)
    of = f" of {count} processes" if count > 1 else ""
    names = ", ".join(dict.fromkeys(records.sources))
    _row("record", f"{names}{of}{f', torch {torch}' if torch else ''}")


def _print_result(
    verdict: RecordedVerdict,
    chosen: tuple[IssueProgram, ScrubResult] | None,
    why_not: str,
    known: Sequence[KnownMatch],
) -> None:
    from reprokit.host.scrub import jail, run_records

    if chosen is None:
        for text in verdict.missing[:2]:
            _row("missing", text, 2)
        _row("no repro", why_not, 2)
        return
    issue, result = chosen
    is_simulated = issue.gpu is not None
    _row("program", f"{issue.title}: {run_records.in_words(result, verdict, is_simulated)}", 2)
    if issue.names_gpu and not is_simulated and not jail.has_gpu():
        _row("missing", "a GPU: --gpu h100 compiles the graph for a simulated one")
    failure = result.failure
    opened = failure.opened if failure is not None else None
    if failure is None or opened is None or not opened.repro:
        for text in verdict.missing[:1]:
            _row("missing", text, 2)
        _row("no repro", (failure.unproven if failure else "") or "the program does not show it")
    for match in known[:1]:
        _row("known", match.sentence)
    if opened is not None:
        if opened.repro:
            lines = opened.repro.splitlines()
            _row("repro", f"{plural(len(lines), 'line')}, fails in {opened.proof} fresh processes")
        path = shlex.quote(str(opened.pack.path))  # a path is never cut
        out.RESULTS.print_line(f"{'pack':<{NAME_COLUMNS}}{path}")
        out.RESULTS.print_line(f"{'next':<{NAME_COLUMNS}}reprokit show {path}")
        if opened.repro and len(opened.repro.splitlines()) <= MAX_REPRO_LINES:
            out.RESULTS.print_line("")
            out.RESULTS.print_text(opened.repro)


def _document(
    records: Records,
    verdict: RecordedVerdict,
    programs: Sequence[IssueProgram],
    chosen: tuple[IssueProgram, ScrubResult] | None,
    why_not: str,
    known: Sequence[KnownMatch],
) -> dict[str, Any]:
    """Return the JSON document."""
    from reprokit.host.scrub import run_records

    failure = chosen[1].failure if chosen is not None else None
    opened = failure.opened if failure is not None else None
    return {
        "schema": 1,
        "from_record": True,
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
        "programs": [{"source": one.title, "text": one.program.text} for one in programs],
        "answer": run_records.answer_of(chosen[1], verdict) if chosen is not None else "",
        "why": run_records.why_of(chosen[1]) if chosen is not None else why_not,
        "repro": opened.repro if opened is not None else "",
        "pack": str(opened.pack.path) if opened is not None else None,
        "known": [match.to_json() for match in known],
    }
