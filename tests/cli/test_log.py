"""The log of a command: reprokit.log in the run directory, and --verbose on the terminal."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest

from reprokit.host.system import host_log
from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

SCRIPT = "import torch; torch.compile(lambda x: x + 1)(torch.ones(2))"


@pytest.mark.real
def test_a_run_directory_has_the_log(tmp_path: Path) -> None:
    """The log names each step with its seconds, and each exception that reprokit ignores."""
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "target.py").write_text(SCRIPT)
    done = reprokit(
        "capture",
        "--output-dir",
        tmp_path / "out",
        "--",
        sys.executable,
        "target.py",
        cwd=tmp_path,
        env=clean_environ(XDG_CACHE_HOME=str(file)),  # answers cannot be kept below a file
    )
    assert done.status == 0 and "step run" not in done.err
    log = (tmp_path / "out" / "run-001" / "reprokit.log").read_text()
    for step in ("run", "observation", "environment", "pack"):
        assert re.search(rf"^20\d\d-\S+ step {step}: \d+\.\d\d s$", log, re.M), step
    assert re.search(r"agent_queries\.py:\d+ ignored \w+: ", log), log
    assert "target.py" in log
    rows = (tmp_path / "out" / "run-001" / "steps.jsonl").read_text().splitlines()
    costs = {row["step"]: row for row in map(json.loads, rows)}
    assert next(iter(costs)) == "run" and list(costs)[-1] == "servers"
    # the program imports torch, and reprokit does not
    assert costs["run"]["children_cpu_s"] > costs["run"]["own_cpu_s"] > 0
    assert costs["run"]["wall_s"] > 0


@pytest.mark.real
def test_verbose_shows_the_log(tmp_path: Path) -> None:
    """--verbose writes the same lines to stderr; stdout has the same JSON as without."""
    (tmp_path / "target.py").write_text(SCRIPT)
    words = ("--output-dir", tmp_path / "out", "--json", "--", sys.executable, "target.py")
    done = reprokit("capture", "-v", *words, cwd=tmp_path)
    assert done.kind == "ok"
    log = (tmp_path / "out" / "run-001" / "reprokit.log").read_text().splitlines()
    shown = [line for line in done.err.splitlines() if " step " in line]
    assert [line.removeprefix("reprokit: ") for line in shown] == [
        line for line in log if " step " in line
    ]


def test_a_defect_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    """The log has the whole traceback; the handlers of a program that uses the API get nothing."""
    records: list[logging.LogRecord] = []
    root = logging.Handler()
    root.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(root)
    with host_log.log_to(tmp_path):
        try:
            raise ValueError("for the log")
        except ValueError:
            host_log.LOGGER.exception("step pack failed")
    log = (tmp_path / "reprokit.log").read_text()
    assert "step pack failed\nTraceback" in log and "ValueError: for the log" in log
    logging.getLogger().removeHandler(root)
    assert not records


def test_repeated_exceptions_do_not_fill_the_log(tmp_path: Path) -> None:
    """The log has the first, the tenth and the hundredth exception of the same source line."""
    with host_log.log_to(tmp_path):
        for number in range(500):
            with host_log.suppress(ValueError):
                raise ValueError(number)
    # the log also has the lines of earlier tests of this process, which waited for a log
    lines = (tmp_path / "reprokit.log").read_text().splitlines()
    mine = [line for line in lines if "test_log.py:" in line]
    assert [line.split(": ", 1)[1] for line in mine] == [
        "0",
        "9 (10 times so far)",
        "99 (100 times so far)",
    ]


def test_a_log_that_cannot_be_written_does_not_stop_the_command(tmp_path: Path) -> None:
    """The command continues without the log."""
    (tmp_path / "reprokit.log").mkdir()
    with host_log.log_to(tmp_path), host_log.suppress(OSError):
        raise OSError("ignored")
