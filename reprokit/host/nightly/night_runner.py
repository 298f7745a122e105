"""Run a suite on an engine, and write the report of the nightly run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from reprokit.core.judge.stacks.location import plural
from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import torch_environments
from reprokit.host.nightly import night_report, night_report_files
from reprokit.host.nightly.engines.engine_table import ENGINES, forget_all_jobs
from reprokit.host.nightly.ledger import ledger_file, prune
from reprokit.host.nightly.night_report_model import NightResult
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.suite.cells import Suite, SuiteCell
from reprokit.host.request import interpreter

Say = Callable[[str], None]


class NightFailed(Exception):
    """The nightly run cannot continue; the message says in one line why, and what to do."""


def run_night(
    suite: Suite,
    cells: tuple[SuiteCell, ...],
    output: Path,
    ledger_path: Path | None,
    engine: str,
    cores: int | None,
    say: Say,
    show: Callable[[str], None],
) -> NightResult:
    """Run a suite to its end or to an interrupt, and write the report.

    The results are in the ledger in both cases.

    Raises:
        NightFailed: the nightly run cannot continue.
    """
    ENGINES[engine].require_available()
    with (
        night.lock_output(output),
        ledger_file.open_ledger(
            ledger_path or output / "ledger.sqlite", is_new_ok=True, is_checked=True
        ) as store,
    ):
        for why in store.refused:
            say(f"refused {why}")
        try:
            pythons, problems = _interpreters(suite, cells, say)
            work = night.begin_jobs(
                suite, cells, pythons, problems, output, store, say, forget_all_jobs
            )
            taken = len(work.jobs) - len(work.left)
            say(
                f"resuming nightly run {work.name}: {taken} of {len(work.jobs)} runs are done"
                if work.is_resumed
                else f"nightly run {work.name}: {plural(len(work.jobs), 'run')}"
            )
            night.collect_results(work)
            for other in ENGINES.values():
                if other.name != engine and work.left and other.holds_jobs(work.path):
                    raise BadInput(
                        f"nightly run {work.name} has jobs on a cluster; resume it with --engine"
                        f" {other.name}"
                    )
            is_interrupted = False
            try:
                ENGINES[engine].run_jobs(work, cores, show, say)
            except KeyboardInterrupt:
                is_interrupted = True
            if not is_interrupted and not work.left:
                night.end_night(work, is_complete=True)
                prune.prune_output(store, suite, output)
            report = night_report.make_report(store, work.id, output)
            night_report_files.write_report(report, output)
        except (OSError, sqlite3.Error) as problem:
            # the complete results are in their folders, and the next start collects them
            raise NightFailed(
                f"the nightly run cannot continue: {problem}; free space or repair {output}, and"
                " start it again: it will be resumed"
            ) from problem
    return {
        **report,
        "is_interrupted": is_interrupted,
        "report": str(output / night_report_files.PAGE_FILE),
        "digest": str(output / night_report_files.DIGEST_FILE),
    }


def _interpreters(
    suite: Suite, cells: tuple[SuiteCell, ...], say: Say
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the interpreter of each environment in use, and why other environments have none."""
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
                obtained = torch_environments.obtain_environment(environment.torch, options, say)
                pythons[name] = obtained.python
            else:
                pythons[name] = interpreter.check_interpreter(environment.python, "python")
        except (BadInput, torch_environments.CannotInstall) as problem:
            problems[name] = str(problem)
            say(f"environment {name}: {problem}")
    return pythons, problems
