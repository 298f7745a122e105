"""The pytest option ``--gpu-results FILE``: write what the checks of ``tests/gpu`` gave on a device.

The file is a record of ``benchmarks.results``, so ``docs/benchmarks.md`` shows it as a table. Without
a device nothing is written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.markdown_tables import GPU_COMMAND
from benchmarks.results import Column, Result, Row, current_environment, today, write_result

NUMBERS = ("graphs", "kernels", "cubins")
"""What is compared with a simulation: each has a number, and how many are alike."""
COLUMNS = (
    Column("check", "check"),
    Column("result", "result"),
    *(
        Column(f"{name}{suffix}", f"{name}{words}")
        for name in NUMBERS
        for suffix, words in (("", ""), ("_alike", " alike"))
    ),
    Column("seconds", "seconds", 0),
    Column("note", "note"),
)
CHECK, DEVICE = "gpu check", "gpu device"
"""Properties of a report: the title of the check, and the facts about the device."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu-results",
        type=Path,
        metavar="FILE",
        help="write the results of tests/gpu as JSON, if there is a CUDA device",
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--gpu-results")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(GpuResults(path), "gpu-results")


class GpuResults:
    """Collect the reports of the checks, and write them after the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        self.device: dict[str, str | int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties)
        if CHECK not in found or (report.passed and report.when != "call"):
            return
        self.device = dict(found.pop(DEVICE))
        title = str(found.pop(CHECK))
        if not report.passed:
            found["note"] = _reason(report)
        outcome = {"check": title, "result": report.outcome, "seconds": report.duration}
        self.rows[title] = {**found, **outcome}

    def pytest_sessionfinish(self) -> None:
        if not self.rows:
            return
        passed = sum(row["result"] == "passed" for row in self.rows.values())
        environment = {**self.device, **current_environment()}
        notes = (f"{passed} of {len(self.rows)} checks passed.",)
        rows = list(self.rows.values())
        result = Result("gpu", GPU_COMMAND, COLUMNS, rows, environment, today(), notes)
        write_result(result, self.path)


def _reason(report: pytest.TestReport) -> str:
    """Return why a check was skipped or failed, in one line."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines() or [""]
    return lines[0][:200]
