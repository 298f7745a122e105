"""A probe server that cannot fork is ended, and the message says why."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from reprokit.host.probe import client
from reprokit.host.probe.candidate import ProbeLimits

WITH_THREADS = """#!/bin/sh
echo $$ >> "${0%/*}/pids"
echo "a library started threads" >&2
echo '{"ready": false, "threads": 7}'
exec sleep 1000
"""


def test_a_server_with_threads_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with threads cannot be forked safely. The next program starts a new server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(client, "START_TIMEOUT_S", 60.0)
    python = tmp_path / "python"
    python.write_text(WITH_THREADS)
    python.chmod(0o755)
    with client.ProbeServer(tmp_path / "server", str(python), "aot") as server:
        for number in (1, 2):
            with pytest.raises(client.ServerLost) as lost:
                server.run_program("pass\n", ProbeLimits(10.0))
            assert str(lost.value) == (
                "the process for trial runs could not start, because it has 7 threads: a library started threads"
            )
            assert server.starts == number
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2 and not any(map(psutil.pid_exists, pids))


@pytest.mark.real
def test_a_child_that_is_killed_does_not_block_the_others(tmp_path: Path) -> None:
    """The lock of tqdm, which torch takes in each compile, is not shared by the children."""
    pytest.importorskip("tqdm")
    holds = "import time, tqdm\ntqdm.tqdm.get_lock().acquire()\ntime.sleep(1000)\n"
    takes = "import tqdm\nwith tqdm.tqdm.get_lock():\n    pass\n"
    with client.ProbeServer(tmp_path / "server", sys.executable, "aot") as server:
        killed, _ = server.run_program(holds, ProbeLimits(2.0))
        ended, _ = server.run_program(takes, ProbeLimits(10.0))
    assert killed.is_timed_out
    assert (ended.is_timed_out, ended.exit_status) == (False, 0)
