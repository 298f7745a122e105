"""A command that a thread waits for can be ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from reprokit.host.system import child_commands
from tests.support.processes import wait_until


def test_all_commands_that_run_are_ended() -> None:
    """Each thread gets the reason, before its deadline."""
    commands = ["sh", "-c", "sleep 1000"], ["sleep", "1000"]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(child_commands.run_for_output, c, 60.0) for c in commands]
        assert wait_until(lambda: len(child_commands._running) == 2, 60)
        child_commands.end_children()
        problems = [one.exception(timeout=60) for one in waiting]
    assert all(isinstance(problem, child_commands.CommandFailed) for problem in problems)
    assert [str(problem) for problem in problems] == [
        "-c sleep 1000: killed by SIGKILL, without an error message",
        "1000: killed by SIGKILL, without an error message",
    ]
    assert not child_commands._running
