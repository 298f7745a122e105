"""A night from its suite to its report, on whichever engine runs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import torch_environments
from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.engines import local_engine, slurm_engine
from reprokit.host.nightly.ledger import ledger_file, prune
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.suite.cells import Suite, SuiteCell
from reprokit.host.request import interpreter

Say = Callable[[str], None]


class NightFailed(Exception):
    """The night itself cannot go on; the message is one line that says why and what to do."""


def run_night(
    suite: Suite,
    cells: tuple[SuiteCell, ...],
    output: Path,
    ledger_path: Path | None,
    engine: str,
    cores: int | None,
    say: Say,
    show: Callable[[str], None],
) -> dict[str, Any]:
    """Run a night to its end, or to an interrupt, and report; what it came to is in the ledger in
    any case.
    """
    if engine == "slurm":
        slurm_engine.check_slurm()
    with (
        night.hold_night(output),
        ledger_file.open_ledger(
            ledger_path or output / "ledger.sqlite", is_new_ok=True, is_checked=True
        ) as store,
    ):
        for why in store.refused:
            say(f"refused {why}")
        try:
            pythons, problems = _interpreters(suite, cells, say)
            work = night.begin_jobs(
                suite, cells, pythons, problems, output, store, say, slurm_engine.forget_jobs
            )
            taken = len(work.jobs) - len(work.left)
            on = (
                f"going on with night {work.name}, {taken} of {len(work.jobs)} are done"
                if work.is_resumed
                else ""
            )
            say(on or f"night {work.name}: {len(work.jobs)} runs")
            night.collect_results(work)
            if engine != "slurm" and work.left and slurm_engine.holds_jobs(work.path):
                raise BadInput(
                    f"night {work.name} has jobs on a cluster; go on with it there: --engine slurm"
                )
            is_interrupted = False
            try:
                if engine == "slurm":
                    slurm_engine.run_on_slurm(work, show, say)
                else:
                    local_engine.run_on_machine(work, local_engine.this_machine(cores), show, say)
            except KeyboardInterrupt:
                is_interrupted = True
            if not is_interrupted and not work.left:
                night.end_night(work, is_complete=True)
                prune.prune_output(store, suite, output)
            told = night_report.make_report(store, work.id, output)
            night_report_files.write_report(told, output)
        except (OSError, sqlite3.Error) as problem:
            # results lie in their folders, whole; the next start takes them
            raise NightFailed(
                f"the night cannot go on: {problem}; make room or mend {output}, and start it"
                " again: it goes on where it was"
            ) from problem
    return {
        **told,
        "is_interrupted": is_interrupted,
        "report": str(output / night_report_files.PAGE),
        "digest": str(output / night_report_files.DIGEST),
    }


def _interpreters(
    suite: Suite, cells: tuple[SuiteCell, ...], say: Say
) -> tuple[dict[str, str], dict[str, str]]:
    """The interpreter of each environment that is used, and why others have none."""
    pythons: dict[str, str] = {}
    problems: dict[str, str] = {}
    for name in dict.fromkeys(cell.settings["environment"] for cell in cells):
        environment = suite.environments[name]
        try:
            if environment.torch:
                options = torch_environments.InstallOptions(
                    packages=environment.packages,
                    index_url=environment.index_url,
                    find_links=environment.find_links,
                )
                found = torch_environments.environment_of_version(environment.torch, options, say)
                pythons[name] = found.python
            else:
                pythons[name] = interpreter.check_interpreter(environment.python, "python")
        except (BadInput, torch_environments.CannotInstall) as problem:
            problems[name] = str(problem)
            say(f"environment {name}: {problem}")
    return pythons, problems
