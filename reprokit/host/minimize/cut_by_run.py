"""Cut a program by what one run of it in eager records."""

from __future__ import annotations

import dataclasses

from reprokit.core.reduce import ast_edits
from reprokit.core.reduce.project import inner_calls, origins
from reprokit.core.shared.contract import run_names
from reprokit.host.minimize.answers.oracle import Oracle
from reprokit.host.probe.client import ServerLost
from reprokit.host.system import deletion, files, host_log

RECORDING_S = 60.0
"""The most seconds for the run in eager that records the values."""


def cut_by_run(text: str, oracle: Oracle, traced: str = "") -> str:
    """Return the program without blocks that never run, and with constants in place of values from
    outside, if it still fails alike.

    If the compiler fails while it traces the function ``traced``, a program that compiles only this
    function, or one that calls it, is tried first.

    Raises:
        BudgetExhausted: the budget ended.
    """
    cutting = oracle.status.trying = "which of its blocks and data it needs"
    with host_log.suppress(*ast_edits.NO_PROGRAM):
        recorded = _record_values(text, oracle, bool(traced))
        if recorded is not None and traced:
            oracle.status.trying = "an inner function alone"
            tried = inner_calls.programs_of_calls(text, recorded.calls, traced)
            inner = next(filter(oracle.shows_failure, tried), "")
            if inner:
                text, recorded = inner, _record_values(inner, oracle)
            oracle.status.trying = cutting
        if recorded is not None:
            return origins.cut_program(text, recorded, oracle.shows_failure, oracle.limits.compares)
    return text


def _record_values(
    text: str, oracle: Oracle, needs_calls: bool = False
) -> origins.RecordedValues | None:
    """Run a program in eager, and return what it recorded; None if there is nothing to record."""
    program = origins.recording_program(text, needs_calls)
    if not program:
        return None
    server, folder = oracle.server, None
    limits = dataclasses.replace(oracle.limits, deadline_s=RECORDING_S)
    try:
        outcome, folder = server.run_program(program, limits, is_eager=True)
        rows = files.read_text(folder / run_names.OUTSIDE_VALUES_FILE).splitlines()
        recorded = origins.read_values(filter(None, map(files.parse_json_object, rows)))
        # a run that ended early says nothing about the blocks after it
        return (
            recorded if outcome.exit_status == 0 else dataclasses.replace(recorded, ran=frozenset())
        )
    except (ServerLost, *ast_edits.NO_PROGRAM) as problem:
        host_log.log_ignored(problem)
        return None
    finally:
        if folder is not None:
            deletion.delete_path(folder, inside=server.folder)
