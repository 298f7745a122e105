"""The last step of a reduction: add an assertion where the failure does not end the program."""

from __future__ import annotations

import dataclasses

from reprokit.core.growth import costs
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.reduce import (
    assertions,
    loud_failures,
    measured_program,
    readable,
    sized_program,
)
from reprokit.core.shared import result_comparison
from reprokit.host.minimize.answers.budget import Budget
from reprokit.host.minimize.answers.oracle import Oracle
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs import proven


def make_failing_program(
    verdict: Verdict, signature: Signature, oracle: Oracle, result: MinimizeResult
) -> str:
    """Return the program as the pack has it: formatted, and with an assertion where it needs one.

    Where the program with the assertion does not show the same failure, return it without.
    """
    title, text = signature.title, result.text
    oracle.budget = Budget()  # that of the user is for the reduction, which has ended
    if oracle.limits.compares:
        comparison = oracle.run_once(text).seen.comparison
        if comparison is not None and comparison.wrong:
            text = _asserting(oracle, result, comparison)
            if text != result.text and assertions.draws_random(result.text):
                # with the seed of the assertion, other values differ
                again = oracle.run_once(text).seen.comparison
                comparison = again if again is not None and again.wrong else comparison
            title = f"{title}: {comparison.wrong[0]}"
    elif oracle.limits.measures:
        seen = oracle.run_once(text).seen
        grown = next(iter(seen.call_growth.growing), None) if seen.call_growth else None
        text = measured_program.with_measurement(text, verdict.kind, grown, seen.speed)
    elif oracle.limits.sizes:
        part = same_failure.compiler_part(verdict.phase or "")
        is_built = costs.CHILDREN in part
        # it compiles more than one graph
        oracle.limits = dataclasses.replace(oracle.limits.relaxed(), stop=None)
        if growth := oracle.run_once(text).seen.growth:
            ratio = costs.allowed_ratio(growth, part, sized_program.min_cost_s(is_built))
            text = sized_program.loop_over_sizes(
                text, oracle.limits.knob, oracle.limits.sizes, ratio, is_built
            )
    else:
        text = loud_failures.fail_loudly(
            text, verdict.kind, _healthy_graphs(oracle, text, verdict.kind)
        )
        if verdict.kind == "graph-break" and not oracle.shows_failure(text):
            text = loud_failures.assert_unbroken(result.text)
    return readable.lay_out(
        text if text != result.text and oracle.shows_failure(text) else result.text,
        title,
        verdict.kind,
    )


def _asserting(
    oracle: Oracle, result: MinimizeResult, comparison: result_comparison.Comparison
) -> str:
    """Return the program with an assertion that fails.

    Where there is no such assertion, return the program as it was, and set ``result.unproved``.
    """
    answers = []
    # with the second seed the program draws the same random values as in the comparison
    for seed in (
        (assertions.SEED, result_comparison.SEED)
        if assertions.draws_random(result.text)
        else (assertions.SEED,)
    ):
        text = assertions.with_check(result.text, comparison.wrong, comparison.is_random, seed)
        if text == result.text:
            result.unproved = f"no assertion can be written for what differs: {comparison.wrong[0]}"
            return text
        answers.append(oracle.answer_for(text))
        if answers[-1] == same_failure.SAME:
            return text
    is_values = assertions.draws_random(result.text) and same_failure.PASSES in answers
    result.unproved = (
        f"with other values drawn for its inputs it passes: {proven.DEPENDS_ON_VALUES}"
        if is_values
        else "with an assertion of its own it does not fail in the same way"
    )
    return result.text


def _healthy_graphs(oracle: Oracle, text: str, kind: str) -> int:
    """Return how many graphs the program has without recompilations."""
    if kind != "recompile-storm":
        return 1
    seen = oracle.run_once(text).seen
    return max(
        1, sum(g.level == "dynamo" for g in seen.graphs) - sum(r.count for r in seen.recompiled)
    )
