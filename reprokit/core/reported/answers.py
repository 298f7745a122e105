"""Decide what a run says about the failure that an issue reports.

Key insight: a program that passes says nothing while one of its conditions is missing, and a
different failure says nothing about the reported one. So both are answers of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.finding import identity_of_title
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.reported.reported_failure import ReportedFailure, is_reported
from reprokit.core.reported.requirements import missing_requirement

FAILS, PASSES, DIFFERENT, CANNOT_TELL = "fails", "passes", "different", "cannot tell"
IS_PRINTED = ", which the program prints, and does not print in eager"
"""The end of the reason for ``fails`` if the program handles its exception."""
_OWN = frozenset({"NameError", "SyntaxError", "IndentationError", "EOFError"})
"""Errors of a program that is a part of something."""
_CHECKS = re.compile(r"<user>:.*|(?:torch|numpy)/testing/.*|<stdlib>/unittest/.*|")
"""Where an assertion is that a program makes about its own results."""
_WITH_MESSAGE = ("exception", "oom", "error-in-eager")
_OUTSIDE = ("", "eager")
_TRACED = ("dynamo-trace", "kernel-run", *_OUTSIDE)
"""Phases of a program's own code, and of the errors of its operators: with fake tensors or real."""


@dataclass(frozen=True)
class CapturedRun:
    """What a capture of the program said."""

    kind: str
    """Of the verdict."""
    what: str
    """``TYPE: MESSAGE`` of the signature, or what it has instead."""
    title: str
    responsible: str
    is_compared: bool
    """The results of compiled code were compared with those of eager."""
    asserts: bool = False
    """The program asserts something about its own results."""
    recompiles: int = 0
    """How many times code was compiled again."""
    lacks_gpu: bool = False
    """The program names a GPU, and the machine has none."""
    is_simulated: bool = False
    """It was compiled for a simulated GPU, where nothing runs."""
    reason: str = ""
    """Of the verdict, or why a run has no answer."""
    errors: tuple[str, ...] = ()
    """The lines of its output that name an error, of a program that handles its exceptions."""
    errors_in_eager: tuple[str, ...] | None = None
    """Those that it prints without torch.compile; None if it did not run without it."""


@dataclass(frozen=True)
class ReportAnswer:
    """What is known about the failure of an issue."""

    answer: str
    """``fails``, ``passes``, ``different`` or ``cannot tell``."""
    why: str
    """One sentence."""


def answer_of_run(
    reported: ReportedFailure,
    run: CapturedRun,
    machine: str = "this machine",
    run_like: str = "",
) -> ReportAnswer:
    """Return the answer of one run on ``machine``.

    ``run_like`` is the machine of the report if the program ran as it does there.
    """
    if run.kind == "unknown":
        return ReportAnswer(CANNOT_TELL, run.reason or "the run gave no answer")
    if reported.missing_error and kind_named(run.kind).is_failure:
        return _of_missing_error(reported, run, run_like)
    if kind_named(run.kind).is_failure:
        return _of_failure(reported, run)
    if run.is_simulated:
        return ReportAnswer(
            CANNOT_TELL, "it compiles for a simulated GPU, where nothing runs: a GPU may show it"
        )
    if run.lacks_gpu:
        return ReportAnswer(
            CANNOT_TELL,
            f"it passes on {machine}, and names a GPU, which this machine does not have",
        )
    if reported.machine != run_like:
        return ReportAnswer(
            CANNOT_TELL, f"it passes on {machine}, and was reported from {reported.machine}"
        )
    if reported.kind == "recompile-limit" and run.recompiles:
        return ReportAnswer(
            DIFFERENT, f"code is compiled again {run.recompiles} times, which reaches no limit"
        )
    if reported.missing_error:
        return ReportAnswer(
            CANNOT_TELL,
            "it runs to its end, and nothing shows whether compiled code raises"
            f" {reported.missing_error}, as eager does",
        )
    if reported.kind == "wrong-result" and not (run.is_compared or run.asserts):
        return ReportAnswer(
            CANNOT_TELL, "it passes, but its results could not be compared with eager's"
        )
    if reported.kind == "exception" and run.errors:
        return _of_printed_error(reported, run)
    if not reported.kind or reported.kind == "slow-compile":
        return ReportAnswer(
            CANNOT_TELL, "it runs to its end, but the text does not say how to see what goes wrong"
        )
    return ReportAnswer(
        PASSES, "the program runs to its end, and nothing of what the issue reports occurs"
    )


def _of_printed_error(reported: ReportedFailure, run: CapturedRun) -> ReportAnswer:
    """Return the answer of a program that handles an exception and prints it."""
    eager = {normalise_message(row) for row in run.errors_in_eager or ()}
    of_compile = [row for row in run.errors if normalise_message(row) not in eager]
    row = next((r for r in of_compile if reported.error and reported.error in r), "")
    if row and run.errors_in_eager is not None:
        return ReportAnswer(FAILS, f"{row}{IS_PRINTED}")
    first = (of_compile or run.errors)[0]
    return ReportAnswer(CANNOT_TELL, f"it runs to its end, and prints an error: {first}")


def _is_check(run: CapturedRun) -> bool:
    """Return whether an assertion failed that the program makes about its own results."""
    place = identity_of_title(run.title).place.partition(" < ")[0]
    return run.what.startswith("AssertionError") and _CHECKS.fullmatch(place) is not None


def _as_printed(run: CapturedRun) -> str:
    """Return the error with what the signature left out, where the reason has it."""
    in_eager = run.reason.partition("without torch.compile too: ")[2]
    type_, colon, message = run.what.partition(": ")
    numbers = re.escape(message).replace(r"\#", r"\S{1,40}?")
    found = re.search(numbers, run.reason) if message else None
    return f"{type_}{colon}{found.group()}" if found else in_eager or run.what


def _of_missing_error(reported: ReportedFailure, run: CapturedRun, run_like: str) -> ReportAnswer:
    """Return the answer of a run that failed, for a report that compiled code does not raise an
    error that eager raises.
    """
    phase = identity_of_title(run.title).phase
    is_own_check = phase in _OUTSIDE and _is_check(run)
    if run.kind == "wrong-result" or is_own_check:
        return ReportAnswer(FAILS, run.title)
    error = run.what.partition(": ")[0].rpartition(".")[2]
    is_raised = run.kind == "exception" and error == reported.missing_error
    missing = missing_requirement(_as_printed(run))
    if missing:
        return ReportAnswer(CANNOT_TELL, missing)
    is_elsewhere = run.lacks_gpu or reported.machine != run_like
    if is_raised and phase in _TRACED and not is_elsewhere:
        return ReportAnswer(PASSES, f"compiled code raises {error}, as eager does")
    return ReportAnswer(DIFFERENT, f"it fails, but not as the issue reports: {run.title}")


def _of_failure(reported: ReportedFailure, run: CapturedRun) -> ReportAnswer:
    """Return the answer of a run that failed."""
    agrees = is_reported(reported, run.kind, run.what)
    is_upstream = run.responsible in ("torch", "triton")
    is_outside = identity_of_title(run.title).phase in _OUTSIDE
    is_own = run.kind == "error-in-eager" or is_outside or not is_upstream
    # the same words: an issue may report that its own machine lacks something
    is_quoted = agrees and (run.kind not in _WITH_MESSAGE or bool(reported.error))
    missing = missing_requirement(_as_printed(run))
    if missing and not is_quoted:
        return ReportAnswer(CANNOT_TELL, missing)
    if agrees or (reported.kind == "wrong-result" and is_own and _is_check(run)):
        return ReportAnswer(FAILS, run.title)
    error = run.what.partition(":")[0].rpartition(".")[2]
    if error in _OWN and not is_upstream:
        return ReportAnswer(
            CANNOT_TELL, f"the program stops with {run.what}, which the issue does not report"
        )
    if agrees is None and is_upstream:
        return ReportAnswer(FAILS, run.title)
    return ReportAnswer(DIFFERENT, f"it fails, but not as the issue reports: {run.title}")
