"""The user's signal reaches the program, whatever arrives while its stacks are read."""

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
    """A lookout that another signal interrupts while it reads stacks."""

    def __init__(self, number: int) -> None:
        self._number = number

    def take(self, is_brief: bool) -> HangStacks:
        """Raise as a signal does."""
        assert is_brief
        interrupts.last = self._number
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("second", "is_asked"), [(signal.SIGTERM, True), (signal.SIGHUP, True), (signal.SIGINT, False)]
)
def test_only_a_second_ctrl_c_skips_the_grace(
    monkeypatch: pytest.MonkeyPatch, second: int, is_asked: bool
) -> None:
    """coreutils' ``timeout`` sends SIGTERM twice: the program still gets it, and its grace."""
    sent: list[int] = []

    def politely(child: Any, number: int, *rest: Any) -> None:
        sent.append(number)

    monkeypatch.setattr(end_program, "end_politely", politely)
    monkeypatch.setattr(interrupts, "last", int(signal.SIGTERM))
    lookout: Any = Interrupted(second)
    child: Any = None
    assert supervise._pass_on(child, REQUEST, lookout, lambda text: None) == HangStacks()
    assert sent == [signal.SIGTERM] * is_asked


def test_stalls_are_read_back(tmp_path: Path) -> None:
    """A run directory keeps each stall that was reported; a damaged list is left out."""
    stall = Stall("idle", "", "sleep", "thread 1 waits in sleep", ("a.py:1 in f",), 1.0, 60.5)
    told = {**run_request.request_to_json(REQUEST), "argv": ["python"], "ended": 1.0}
    files.write_json(tmp_path / "run.json", {**told, "stalls": [to_json(stall)]})
    assert restore_run.restore_run(tmp_path)[1].stalls == (stall,)
    files.write_json(tmp_path / "run.json", {**told, "stalls": ["?"]})
    assert restore_run.restore_run(tmp_path)[1].stalls == ()
