"""Run the target again, in short runs, to learn more about a hang.

Each question is one run, and its answer is one line. A factory target is run again by default; a
whole command, which may train, write files or cost money, only with ``--escalate``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.judge.stacks import frames
from reprokit.core.judge.stacks.phases import COMPILE_PHASES
from reprokit.core.records import stalls
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Answer, Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.host.probe.client import ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory, supervise
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import files, host_log

SHORT_STALL_S = 20.0
START_S = 60.0
"""Additional seconds for the start of a run without torch.compile."""
WORKER_WAIT_S = 10
LOG_LINES = 12


@dataclass(frozen=True)
class Question:
    """A question that only a second run can answer."""

    name: str
    description: str
    is_open: Callable[[Verdict], bool]
    change: Callable[[Request, Path], Request]


def _with_variables(**variables: str) -> Callable[[Request, Path], Request]:
    return lambda request, path: dataclasses.replace(request, variables=variables)


def _with_logs(request: Request, path: Path) -> Request:
    names = ("+inductor", "+torch._inductor.runtime.triton_heuristics")
    return dataclasses.replace(
        request,
        logs=names,
        variables={"TRITON_REPRODUCER_PATH": str(path / run_names.LOGS_FOLDER / "triton")},
    )


def _with_short_worker_wait(request: Request, path: Path) -> Request:
    patience = {"TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT": str(WORKER_WAIT_S)}
    return dataclasses.replace(request, logs=("+inductor",), variables=patience)


QUESTIONS = (
    Question(
        "backend-eager",
        'with backend="eager"',
        lambda verdict: verdict.phase in COMPILE_PHASES,
        _with_variables(REPROKIT_OVERRIDES=json.dumps({"compile": {"backend": "eager"}})),
    ),
    Question(
        "worker-wait",
        f"with TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT={WORKER_WAIT_S}",
        lambda verdict: (
            (verdict.cause or "").startswith("compile-worker") and verdict.phase == "worker-wait"
        ),
        _with_short_worker_wait,
    ),
    Question(
        "logs",
        "the last lines of TORCH_LOGS=+inductor",
        lambda verdict: (
            verdict.phase in ("triton-compile", "worker-wait") or verdict.cause == "unknown"
        ),
        _with_logs,
    ),
)


def wants_follow_up(request: Request, verdict: Verdict, outcome: RunOutcome) -> bool:
    """Return True for a hang, where a second run is harmless or the user asked for it."""
    is_harmless = request.target.kind != "command" if request.escalate is None else request.escalate
    return verdict.kind == "hang" and is_harmless and not outcome.is_interrupted


def ask_follow_ups(
    request: Request,
    verdict: Verdict,
    first: RunOutcome,
    run_path: Path,
    show: supervise.Show | None,
) -> tuple[Answer, ...]:
    """Answer every open question with one short run each, below ``run_path/escalate``."""
    answers = []
    stall_s = min(request.stall_s, SHORT_STALL_S)
    deadline_s = 2 * max(first.seconds - first.quiet_s, 0.0) + stall_s + 30
    deadline_s = min(request.deadline_s or deadline_s, deadline_s)
    for question in QUESTIONS:
        if not question.is_open(verdict):
            continue
        folder = run_path / run_names.FOLLOW_UP_FOLDER / question.name
        run_directory.make_folders(folder)
        shorter = dataclasses.replace(
            request, stall_s=stall_s, on_stall=stalls.END, deadline_s=deadline_s, has_trace=False
        )
        outcome = supervise.run_target_once(question.change(shorter, folder), folder, show)
        seen = observation_reader.read_observation(
            shorter, outcome, folder, observation_reader.read_journals(folder)
        )
        answers.append(
            Answer(question.description, _answer(question, seen, outcome, folder), outcome.seconds)
        )
        if outcome.is_interrupted:
            break
    return tuple(answers)


def _answer(question: Question, seen: Observation, outcome: RunOutcome, folder: Path) -> str:
    if outcome.is_interrupted:
        return "the run was interrupted"
    if question.name == "logs":
        text = "\n".join(
            files.read_tail(p, 20_000)
            for p in sorted((folder / run_names.LOGS_FOLDER).glob("torch-*.log"))
        )
        rows = [row for row in text.splitlines() if row.strip()]
        return "\n".join(rows[-LOG_LINES:]) or "nothing was logged"
    if seen.raised is not None:
        link = frames.root_cause(seen.raised)
        first = link.message.strip().splitlines()[0] if link.message.strip() else ""
        return f"{link.type}: {cuts.cut_head(first, 500)}"
    if outcome.is_stalled:
        return f"it hangs too: no progress for {outcome.quiet_s:.0f} s"
    if outcome.is_timed_out:
        return f"it did not end within {outcome.seconds:.0f} s"
    if outcome.exit_status == 0:
        return f"it passes in {outcome.seconds:.1f} s"
    return f"it ended: {describe_exit(outcome.exit_status)}"


def check_eager(
    request: Request,
    seen: Observation,
    run_path: Path,
    show: supervise.Show | None,
    run_forked: Callable[[], tuple[RunOutcome, Observation]] | None = None,
) -> Observation:
    """Run the target without torch.compile, and return ``seen`` with the result.

    ``run_forked`` runs it in a process that need not import torch; a fresh process is asked where
    there is none, or where the target does not pass in it.

    A failure is one of the compiler only where the eager run is healthy. The run has more time than
    the compiled one, and it hangs only if it gets as far: on a busy machine, the import of torch
    and the construction of a large model can take longer than a short deadline.
    """
    if run_forked is not None:
        with host_log.suppress(ServerLost):
            outcome, eager = run_forked()
            if eager.has_finished and eager.exit_status == 0:
                return _passed(seen, outcome)
    folder = run_path / run_names.EAGER_FOLDER
    run_directory.make_folders(folder)
    deadline_s = request.deadline_s
    plain = dataclasses.replace(
        request,
        compile_it=False,
        compares_memory=False,
        deadline_s=None if deadline_s is None else deadline_s + START_S,
    )
    outcome = supervise.run_target_once(plain, folder, show)
    eager = observation_reader.read_observation(
        plain, outcome, folder, observation_reader.read_journals(folder)
    )
    if outcome.is_interrupted:
        return dataclasses.replace(
            seen, eager_detail="the run without torch.compile was interrupted"
        )
    if outcome.is_timed_out:
        detail = f"it did not end within {outcome.seconds:.0f} s without torch.compile"
        is_behind = _has_called(seen) and not _has_called(eager)
        detail += ", and had not called the model" if is_behind else ""
        return dataclasses.replace(seen, eager="" if is_behind else "hangs", eager_detail=detail)
    if eager.has_finished and eager.exit_status == 0:
        return _passed(seen, outcome)
    detail = describe_end(eager)
    return dataclasses.replace(
        seen, eager="fails", eager_detail=detail, raised=eager.raised or seen.raised
    )


def _passed(seen: Observation, outcome: RunOutcome) -> Observation:
    detail = f"it passed in {outcome.seconds:.1f} s"
    return dataclasses.replace(seen, eager="passes", eager_detail=detail)


def _has_called(seen: Observation) -> bool:
    """Return whether the run of a factory target was in a call of the model when it ended."""
    return any(name.startswith(("stage:call", "stage:eager")) for name in seen.open_events)


def describe_end(seen: Observation) -> str:
    """Return how a run ended: its exception, or its exit status."""
    if seen.raised is not None:
        root = frames.root_cause(seen.raised)
        line = next((row for row in root.message.splitlines() if row.strip()), "")
        return f"{root.type}: {cuts.cut_head(line.strip(), 200)}"
    return describe_exit(seen.exit_status)
