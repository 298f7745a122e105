"""The pytest option ``--cpu-times N``: print the CPU seconds of the most expensive tests.

The CPU time of a test is that of pytest's process and of all children that were reaped from the
begin of the test's set-up to the end of its tear-down. A fixture that several tests share counts
for the first of them. A detached process that is still alive, or that init reaps, is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

KEY = "cpu_s"


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its reaped children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times",
        type=int,
        metavar="N",
        help="print the CPU seconds (own and reaped children) of the N most expensive tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-times") is not None:
        config.pluginmanager.register(CpuTimes(config), "cpu-times-collector")


class CpuTimes:
    """Measure tests in a worker, and collect the reports of all workers in the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.before = 0.0
        self.tests: dict[str, float] = {}
        self.workers: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.before = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            setattr(report, KEY, cpu_seconds() - self.before)  # xdist sends it to the controller
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (seconds := getattr(report, KEY, None)) is not None:
            self.tests[report.nodeid] = seconds

    def pytest_sessionfinish(self) -> None:
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            output[KEY] = cpu_seconds()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if KEY in (output := getattr(node, "workeroutput", {})):
            self.workers[node.gateway.id] = output[KEY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        rows = sorted(self.tests.items(), key=lambda row: row[1], reverse=True)
        for name, seconds in rows[: self.config.getoption("--cpu-times")]:
            write(f"{seconds:8.1f} {name}")
        write(f"{sum(self.tests.values()):8.1f} all {len(self.tests)} tests")
        workers = self.workers or {"this process": cpu_seconds()}
        for name, seconds in sorted(workers.items()):
            write(f"{seconds:8.1f} {name} with its start and the collection of tests")
