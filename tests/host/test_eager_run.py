"""The run of a factory target without torch.compile, which confirms a hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.core.records.observation import Observation
from reprokit.host.experiments import follow_up
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_target

SLOW_BUILD = "import time\n\ndef make():\n    time.sleep(1000)\n"


@pytest.mark.real
@pytest.mark.parametrize(
    ("compiled_run_was_in", "answer"), [("stage:call-0", ""), ("stage:build", "hangs")]
)
def test_a_slow_start_is_no_hang_without_the_compiler(
    compiled_run_was_in: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends before it calls the model shows a hang only if the compiled run did not call
    it either.
    """
    monkeypatch.setattr(follow_up, "START_S", 0.0)
    (tmp_path / "model.py").write_text(SLOW_BUILD)
    request = Request(parse_target(f"{tmp_path}/model.py:make"), deadline_s=4.0, grace_s=1.0)
    seen = Observation(open_events=(compiled_run_was_in,))
    checked = follow_up.check_eager(request, seen, tmp_path, None)
    assert checked.eager == answer
    assert ("had not called the model" in checked.eager_detail) is not bool(answer)
