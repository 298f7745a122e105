"""The pytest option ``--cpu-times N``: print the CPU seconds of each tier, and of its N most
expensive tests.

The CPU time of a test is that of pytest's process and of all children that were reaped from the
begin of the test's set-up to the end of its tear-down. A fixture that several tests share counts
for the first of them. A detached process that is still alive, or that init reaps, is not counted.

A test of the tier ``real`` that takes more than ``REASON_S`` needs a reason in its marker:
``@pytest.mark.real("it reduces a crash")``. The run names those without one, and does not fail,
because CPU seconds depend on the machine.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

from tests.support import requirements

KEY = "cpu_s"
REASON_S = 20
_of_servers_s = 0.0
"""The CPU seconds of children that a server of this process reaped."""


def add_cpu_seconds(seconds: float) -> None:
    """Count the CPU seconds of a child of a server."""
    global _of_servers_s
    _of_servers_s += seconds


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, of its reaped children, and of those of its
    servers.
    """
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + _of_servers_s


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times",
        type=int,
        metavar="N",
        help="print the CPU seconds (own and reaped children) of the N most expensive tests of"
        " each tier",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-times") is not None:
        config.pluginmanager.register(CpuTimes(config), "cpu-times-collector")


class CpuTimes:
    """Measure tests in a worker, and collect the reports of all workers in the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.before = 0.0
        self.tests: dict[str, dict[str, float]] = defaultdict(dict)
        """For each tier, the CPU seconds of its tests."""
        self.unexplained: dict[str, float] = {}
        """The CPU seconds of real tests without a reason."""
        self.workers: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.before = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            tier = requirements.tier_of(item)
            row = [tier, _has_reason(item), cpu_seconds() - self.before]
            setattr(report, KEY, row)  # xdist sends it to the controller
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (row := getattr(report, KEY, None)) is not None:
            tier, has_reason, seconds = row
            self.tests[tier][report.nodeid] = seconds
            if tier == requirements.REAL and not has_reason:
                self.unexplained[report.nodeid] = seconds

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            output[KEY] = cpu_seconds()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if KEY in (output := getattr(node, "workeroutput", {})):
            self.workers[node.gateway.id] = output[KEY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        for tier in requirements.TIERS:
            if not (tests := self.tests[tier]):
                continue
            terminalreporter.section(f"CPU seconds of {len(tests)} {tier} tests")
            rows = sorted(tests.items(), key=lambda row: row[1], reverse=True)
            for name, seconds in rows[: self.config.getoption("--cpu-times")]:
                write(f"{seconds:8.1f} {name}")
            write(f"{sum(tests.values()):8.1f} all {len(tests)} {tier} tests")
        workers = self.workers or {"this process": cpu_seconds()}
        for name, seconds in sorted(workers.items()):
            write(f"{seconds:8.1f} {name} with its start and the collection of tests")
        for name, seconds in self.unexplained.items():
            if seconds > REASON_S:
                write(f"{name} took {seconds:.1f} CPU-seconds and has no reason in its marker real")


def _has_reason(item: pytest.Item) -> bool:
    return any(marker.args for marker in item.iter_markers(requirements.REAL))
