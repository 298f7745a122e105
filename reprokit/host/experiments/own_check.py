"""What a program's own check of its results shows: run it without torch.compile, and compare.

A command runs once, but a copy of its program may run isolated from the machine. If an exception of
the program's own code does not occur there without torch.compile, the results of its compiled calls
are compared with those of eager.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

from reprokit.core.experiments.ablation import BACKENDS, EAGER, CompileVariant
from reprokit.core.judge import same_failure
from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared import cuts
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.core.shared.result_comparison import MISSING, NOTHING
from reprokit.host.experiments import follow_up, run_ablation
from reprokit.host.experiments.eager_vs_compiled import raised_alike
from reprokit.host.probe.candidate import CandidateResult, probe_limits_for
from reprokit.host.probe.client import ProbeServer
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.report import users_line

MIN_DEADLINE_S = 60.0
SLOWER = 4.0
"""The deadline of a run, as a multiple of the time of the run that failed."""
MAX_CHECK_CHARS = 200
AS_IT_SAYS = CompileVariant("as the program says", "own")


def check_without_compile(
    program: str,
    isolation: Isolation,
    server: ProbeServer,
    python: str,
    wanted: Signature,
    seen: Observation,
    folder: Path,
) -> Observation:
    """Run a copy of the program without torch.compile, and compare its results if it passes.

    Return ``seen`` with what that shows.
    """
    deadline_s = max(MIN_DEADLINE_S, SLOWER * seen.seconds)
    limits = probe_limits_for("wrong-result", deadline_s, isolation=isolation)
    runner = run_ablation.AblationRunner(server, program, wanted, limits, python)
    with contextlib.closing(runner):
        eager = runner.run_variant(EAGER)
        if eager.verdict.kind != "ok":
            # the server has imported more than the program, so a fresh process must fail as well
            usual = dataclasses.replace(limits, compares=False)
            eager = run_in_fresh_process(program, python, folder, wanted, usual, is_eager=True)
            detail = follow_up.describe_end(eager.seen)
            if not ended_alike(seen, eager.seen):
                way = "without torch.compile, a copy of the program ended in a different way"
                return dataclasses.replace(seen, eager_detail=f"{way}: {detail}")
            return dataclasses.replace(seen, eager="fails", eager_detail=detail)
        compiled = runner.run_variant(AS_IT_SAYS)
    comparison = compiled.seen.comparison
    # the exception ended the program, so what only eager has is no wrong result
    wrong = comparison.wrong if comparison is not None else ()
    is_wrong = any(d.what != MISSING or d.expected == NOTHING for d in wrong)
    if not (is_wrong or ended_alike(seen, compiled.seen)):
        return seen
    copy = "a" if isolation.is_open else "an isolated"
    seen = dataclasses.replace(seen, eager="passes", eager_detail=f"{copy} copy passes")
    if is_wrong:
        return dataclasses.replace(seen, comparison=comparison)
    limits = dataclasses.replace(limits, compares=False)
    runner = run_ablation.AblationRunner(server, program, wanted, limits, python)
    return _with_check(seen, runner)


def _with_check(seen: Observation, runner: run_ablation.AblationRunner) -> Observation:
    """Return ``seen`` with the check that fails, and the part of the compiler that it needs.

    Only backends that generate no code are tried, because rounding may explain the others.
    """
    for variant in BACKENDS[1:3]:
        if ended_alike(seen, runner.run_variant(variant).seen):
            return dataclasses.replace(seen, check=_text_of_check(seen), failing_part=variant.part)
    return seen


def _text_of_check(seen: Observation) -> str:
    """Return the line of the program that raised, or how the program ended itself."""
    if seen.raised is None:
        return f"exit status {seen.exit_status}"
    judged = judge_run(seen)
    text = users_line.find_text_of_line(judged, seen)
    return cuts.cut_head(text, MAX_CHECK_CHARS) or judged.cause or "an exception"


def ended_alike(seen: Observation, other: Observation) -> bool:
    """Return whether two runs raised exceptions of one type, or ended with one exit status."""
    if seen.raised is None and other.raised is None:
        return bool(seen.exit_status) and seen.exit_status == other.exit_status
    return raised_alike(seen, other)


def note_eager_end(
    program: str, verdict: Verdict, seen: Observation, eager: CandidateResult
) -> Observation:
    """Return ``seen`` with the end of ``program`` without torch.compile, if an exception of the
    compiler is at a line that raises one there too.

    The message may be different, because fake tensors check first.
    """
    if verdict.kind != "exception" or eager.answer != same_failure.OTHER:
        return seen
    if eager.seen.raised is None:
        return seen
    own = ownership.innermost_own(ownership.stack_of(eager.verdict, eager.seen))
    number = int(own.at.rpartition(":")[2]) if own is not None else 0
    lines, line = program.splitlines(), users_line.find_text_of_line(verdict, seen)
    if not line or not 0 < number <= len(lines) or lines[number - 1].strip() != line:
        return seen
    return dataclasses.replace(seen, eager="fails", eager_detail=follow_up.describe_end(eager.seen))
