"""Line and branch coverage of host, core and agent, of all processes that tests start.

``nox -s coverage`` runs the tests with ``-p tests.support.measured_coverage`` and COVERAGE_PROCESS_START,
and then ``python -m tests.support.measured_coverage FOLDER``, which combines the data files of all
processes and prints a table. A process that is killed by SIGKILL leaves no data.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "tests" / "coverage.ini"
LAYERS = ("core", "host", "agent")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """Record under the name of a test what it runs in the process of pytest."""
    if (measured := coverage.Coverage.current()) is not None:
        measured.switch_context(nodeid)


def main(folder: str) -> None:
    """Combine the data files in a folder, and print the coverage of each layer."""
    os.environ["COVERAGE_FOLDER"] = folder
    os.chdir(ROOT)
    measured = coverage.Coverage(config_file=str(CONFIGURATION))
    measured.combine([folder], keep=True)
    files = {layer: sorted((ROOT / "reprokit" / layer).rglob("*.py")) for layer in LAYERS}
    everything = [str(path) for paths in files.values() for path in paths]
    measured.get_data().touch_files(everything)  # a file that no test imports has no data
    measured.save()
    print("layer        lines  covered     %   branches  covered     %")
    rows = {**files, "all": [path for paths in files.values() for path in paths]}
    for name, paths in rows.items():
        lines = hit_lines = branches = hit_branches = 0
        for path in paths:
            numbers = measured._analyze(str(path)).numbers
            lines += numbers.n_statements
            hit_lines += numbers.n_executed
            branches += numbers.n_branches
            hit_branches += numbers.n_executed_branches
        print(
            f"{name:<10} {lines:>7} {hit_lines:>8} {hit_lines / lines:6.2%}"
            f" {branches:>9} {hit_branches:>8} {hit_branches / branches:6.2%}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
