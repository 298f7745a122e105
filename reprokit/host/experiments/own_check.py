"""What a program's own check of its results shows: run it without torch.compile, and compare.

A command runs once, but a copy of its program may run isolated from the machine. If an exception of
the program's own code does not occur there without torch.compile, the results of its compiled calls
are compared with those of eager.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from pathlib import Path

from reprokit.core.experiments.ablation import BACKENDS, EAGER, CompileVariant
from reprokit.core.judge import exit_signal, same_failure
from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.process_state import describe_exit
from reprokit.core.shared import cuts
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.core.shared.result_comparison import MISSING, NOTHING
from reprokit.host.experiments import follow_up, run_ablation, sanitized_run
from reprokit.host.experiments.eager_vs_compiled import raised_alike
from reprokit.host.probe.candidate import CandidateResult, probe_limits_for
from reprokit.host.probe.client import ProbeServer
from reprokit.host.probe.fresh_process import run_in_fresh_process
from reprokit.host.report import users_line
from reprokit.host.system import host_log

MIN_DEADLINE_S = 60.0
SLOWER = 4.0
"""The deadline of a run, as a multiple of the time of the run that failed."""
MAX_CHECK_CHARS = 200
MAX_KILLED_RUNS = 3
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
        compiled = _run_as_it_says(runner)
    copy = f"{'a' if isolation.is_open else 'an isolated'} copy"
    is_killed = _is_killed(compiled)
    if not (_has_wrong_result(compiled) or is_killed or ended_alike(seen, compiled.seen)):
        end = f"ended in a different way: {follow_up.describe_end(compiled.seen)}"
        if compiled.verdict.kind == "ok":
            end = "passes too"
        way = f"without torch.compile, {copy} of the program passes; with it, a copy {end}"
        return dataclasses.replace(seen, eager_detail=way)
    seen = dataclasses.replace(seen, eager="passes", eager_detail=f"{copy} passes")
    if _has_wrong_result(compiled):
        return dataclasses.replace(seen, comparison=compiled.seen.comparison)
    if is_killed:
        end = describe_exit(compiled.seen.exit_status)
        return dataclasses.replace(seen, eager_detail=f"{copy} passes; compiled, it was {end}")
    detail = f"{copy} passes, and no compared result is wrong"
    seen = dataclasses.replace(seen, eager_detail=detail)
    limits = dataclasses.replace(limits, compares=False)
    runner = run_ablation.AblationRunner(server, program, wanted, limits, python)
    return _with_check(seen, runner)


def _run_as_it_says(runner: run_ablation.AblationRunner) -> CandidateResult:
    """Run the program as it is, and again while a signal kills it; return the last run.

    Compiled code that damages the heap fails the program's check in one run, and ends in an abort
    of glibc in the next.
    """
    for _ in range(MAX_KILLED_RUNS):
        compiled = runner.run_variant(AS_IT_SAYS)
        if not _is_killed(compiled):
            break
    return compiled


def _is_killed(result: CandidateResult) -> bool:
    """Return whether a run was killed by a signal that its own code causes, and not by a limit."""
    return exit_signal.signal_of(result.seen) in sanitized_run.SIGNALS


def _has_wrong_result(compiled: CandidateResult) -> bool:
    """Return whether a compiled call returned a result that eager does not return.

    The exception ended the program, so a result that only eager has is no wrong result.
    """
    comparison = compiled.seen.comparison
    wrong = comparison.wrong if comparison is not None else ()
    return any(d.what != MISSING or d.expected.startswith(NOTHING) for d in wrong)


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
    compiler is at a line that raises one there too, or in a call that does.

    The message may be different, because fake tensors and kernels check in their own way.
    """
    if verdict.kind != "exception" or eager.answer != same_failure.OTHER:
        return seen
    if eager.seen.raised is None:
        return seen
    rows, stack = program.splitlines(), ownership.stack_of(eager.verdict, eager.seen)
    numbers = (frame.line for frame in ownership.own_frames(stack))
    lines = {_as_code(rows[number - 1]) for number in numbers if 0 < number <= len(rows)}
    raising = {users_line.find_text_of_line(verdict, seen), _call_that_raised(verdict, seen)}
    if not {_as_code(line) for line in raising if line} & lines:
        return seen
    return dataclasses.replace(seen, eager="fails", eager_detail=follow_up.describe_end(eager.seen))


def _call_that_raised(verdict: Verdict, seen: Observation) -> str:
    """Return the program's innermost line on the stack of the exception. The frame of a compiled
    function is at its ``def``, which raises nothing.
    """
    for frame in ownership.own_frames(ownership.stack_of(verdict, seen)):
        text = users_line.source_line(Path(frame.file), frame.line).strip()
        if text and not text.startswith(("def ", "async def ", "class ", "@")):
            return text
    return ""


def _as_code(line: str) -> str:
    """Return a line as ``ast.unparse`` writes it, as in a program of several files; a line that is
    only a part of a statement is returned as it is.
    """
    text = line.strip()
    with host_log.suppress(SyntaxError, ValueError):
        return ast.unparse(ast.parse(text))
    return text
