"""The runs that follow a failure: short runs after a hang, and a run without torch.compile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.host.experiments import follow_up
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_command, parse_target
from reprokit.host.run import run_directory, supervise

AT_WORK = "import time\nwhile True: print('at work', flush=True), time.sleep(0.1)"
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


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("pass", "it passes in "),
        ("raise ValueError('no worker\\nat all')", "ValueError: no worker"),
        ("raise SystemExit(3)", "it ended: exit status 3"),
        (AT_WORK, "it did not end within "),
    ],
)
def test_a_short_run_answers_a_question_about_a_hang(
    program: str, answer: str, tmp_path: Path
) -> None:
    """Each open question has its variables, and an answer says how its run ended."""
    variables = ("REPROKIT_OVERRIDES", "TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT")
    check = f"import os; assert sum(name in os.environ for name in {variables}) == 1"
    command = (sys.executable, "-c", f"{check}\n{program}")
    deadline_s = 4.0 if program == AT_WORK else 60.0
    request = Request(parse_command(command), deadline_s=deadline_s, stall_s=2.0, grace_s=0.1)
    healthy = Request(parse_command((sys.executable, "-c", "pass")))
    run_directory.make_folders(tmp_path / "first")
    first = supervise.run_target_once(healthy, tmp_path / "first")
    hang = Verdict("hang", "worker-wait", "compile-worker-lost", "")
    answers = follow_up.ask_follow_ups(request, hang, first, tmp_path, None)
    assert [row.question for row in answers] == [
        'with backend="eager"',
        "with TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT=10",
        "the last lines of TORCH_LOGS=+inductor",
    ]
    assert all(row.answer.startswith(answer) for row in answers[:2]), answers
    assert answers[2].answer == "nothing was logged"


def test_a_failure_without_the_compiler_is_described(tmp_path: Path) -> None:
    """The exception, or the exit status of a program that leaves none."""
    for program, detail in (
        ("raise KeyError('gone')", "KeyError: 'gone'"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ):
        request = Request(parse_command((sys.executable, "-c", program)))
        checked = follow_up.check_eager(request, Observation(), tmp_path / detail, None)
        assert (checked.eager, checked.eager_detail) == ("fails", detail)


def test_a_forked_run_that_passes_needs_no_fresh_one(tmp_path: Path) -> None:
    """One that ends otherwise does, because the server may be what it fails for."""
    request = Request(parse_command((sys.executable, "-c", "raise KeyError('gone')")))
    run_directory.make_folders(tmp_path / "first")
    outcome = supervise.run_target_once(request, tmp_path / "first")
    passed = Observation(exit_status=0, has_finished=True)
    for forked, answer in ((passed, "passes"), (Observation(exit_status=1), "fails")):
        folder = tmp_path / answer
        checked = follow_up.check_eager(
            request, Observation(), folder, None, lambda left=forked: (outcome, left)
        )
        assert checked.eager == answer
        assert folder.exists() == (answer == "fails")
