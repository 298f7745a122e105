"""The user's signal reaches the program, even if a second signal arrives while its stacks are
read.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.records.stalls import Stall
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.request import run_request
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run import end_program, restore_run, supervise
from reprokit.host.system import files, interrupts
from reprokit.host.watch.hang_evidence import HangStacks

REQUEST = Request(Target("command", command=("python", "train.py")))


class Interrupted:
    """A watchdog that a second signal interrupts while it reads stacks."""

    def __init__(self, number: int) -> None:
        self._number = number

    def gather_final_evidence(self, is_brief: bool) -> HangStacks:
        """Raise KeyboardInterrupt, as a signal does."""
        assert is_brief
        interrupts.last = self._number
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("second", "is_sent"), [(signal.SIGTERM, True), (signal.SIGHUP, True), (signal.SIGINT, False)]
)
def test_only_a_second_ctrl_c_skips_the_grace_period(
    monkeypatch: pytest.MonkeyPatch, second: int, is_sent: bool
) -> None:
    """The ``timeout`` of coreutils sends SIGTERM twice: the program still gets it, with its grace
    period.
    """
    sent: list[int] = []

    def send(child: Any, number: int, *rest: Any) -> None:
        sent.append(number)

    monkeypatch.setattr(end_program, "end_with_signal", send)
    monkeypatch.setattr(interrupts, "last", int(signal.SIGTERM))
    watchdog: Any = Interrupted(second)
    child: Any = None
    assert supervise._forward_signal(child, REQUEST, watchdog, lambda text: None) == HangStacks()
    assert sent == [signal.SIGTERM] * is_sent


def test_stalls_are_restored(tmp_path: Path) -> None:
    """A run directory keeps each reported stall, and a damaged list is left out."""
    stall = Stall("idle", "", "sleep", "thread 1 waits in sleep", ("a.py:1 in f",), 1.0, 60.5)
    document = {**run_request.request_to_json(REQUEST), "argv": ["python"], "ended": 1.0}
    files.write_json(tmp_path / "run.json", {**document, "stalls": [to_json(stall)]})
    assert restore_run.restore_run(tmp_path)[1].stalls == (stall,)
    files.write_json(tmp_path / "run.json", {**document, "stalls": ["?"]})
    assert restore_run.restore_run(tmp_path)[1].stalls == ()
