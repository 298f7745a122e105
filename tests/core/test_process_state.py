"""Records about the processes of a run."""

from __future__ import annotations

import pytest

from reprokit.core.records.process_state import describe_exit


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-11, "killed by SIGSEGV"),
        (-64, "killed by SIGRTMAX"),
        (-99, "killed by signal 99"),
        (2, "exit status 2"),
        (None, "did not end by itself"),
    ],
)
def test_an_exit_is_described_in_words(status: int | None, words: str) -> None:
    """A signal has its name, and any other status its number."""
    assert describe_exit(status) == words
