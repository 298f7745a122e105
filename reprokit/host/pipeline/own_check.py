"""What the program's own check of its results shows: run it without torch.compile, and compare.

A command runs once, but a copy of its program may run isolated from the machine. If an exception of
the program's own code does not occur there without torch.compile, the results of its compiled calls
are compared with those of eager.
"""

from __future__ import annotations

import contextlib
import dataclasses

from reprokit.core.experiments.ablation import EAGER, CompileVariant
from reprokit.core.judge.stacks import frames
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.host.experiments import follow_up, run_ablation
from reprokit.host.pipeline.state import SLOWER, State
from reprokit.host.probe.candidate import probe_limits_for
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.system import interrupts

MIN_DEADLINE_S = 60.0
AS_IT_SAYS = CompileVariant("as the program says", "own")


def may_check(state: State) -> bool:
    """Return True for a command that compiled something, and ended by an exception of its own."""
    is_own = state.has_run and state.is_command and state.verdict.kind == "error-in-eager"
    return is_own and not state.seen.eager and bool(state.seen.graphs)


def check_without_compile(state: State) -> State:
    """Run a copy of the program without torch.compile, and compare its results if it passes."""
    case = state.study.case_for(state)
    if not case.source or case.isolation is None:
        return state
    state.callbacks.say(
        "its own code raised an exception: running an isolated copy without torch.compile"
    )
    deadline_s = max(MIN_DEADLINE_S, SLOWER * state.seen.seconds)
    limits = probe_limits_for("wrong-result", deadline_s, isolation=case.isolation)
    server = state.study.server_for(case)
    runner = run_ablation.AblationRunner(server, case.source, case.signature, limits, case.python)
    with interrupts.allowed(), contextlib.closing(runner):
        eager = runner.run_variant(EAGER)
        if eager.verdict.kind != "ok":
            # the server has imported more than the program, so a fresh process must fail as well
            folder = state.run_path / run_names.EAGER_FOLDER
            usual = dataclasses.replace(limits, compares=False)
            eager = run_in_fresh_process(
                case.source, case.python, folder, case.signature, usual, is_eager=True
            )
            if not _is_same_exception(state.seen, eager.seen):
                return state
            detail = follow_up.describe_end(eager.seen)
            seen = dataclasses.replace(state.seen, eager="fails", eager_detail=detail)
            return dataclasses.replace(state, seen=seen)
        compiled = runner.run_variant(AS_IT_SAYS)
    comparison = compiled.seen.comparison
    is_wrong = comparison is not None and bool(comparison.wrong)
    if not (is_wrong or _is_same_exception(state.seen, compiled.seen)):
        return state  # the copy does not fail as the program did
    seen = dataclasses.replace(state.seen, eager="passes", eager_detail="an isolated copy passes")
    if is_wrong:
        seen = dataclasses.replace(seen, comparison=comparison)
    return dataclasses.replace(state, seen=seen)


def _is_same_exception(seen: Observation, other: Observation) -> bool:
    if seen.raised is None or other.raised is None:
        return False
    return frames.root_cause(seen.raised).type == frames.root_cause(other.raised).type
