"""The last step of a reduction: make the program fail by itself, where its kind of failure ends no
program.
"""

from __future__ import annotations

import dataclasses

from reprokit.core.growth import costs
from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.reduce import assertions, readable, sized_program
from reprokit.core.shared import result_comparison
from reprokit.host.minimize import proven
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.oracle import Oracle


def make_it_fail(
    verdict: Verdict, signature: Signature, asker: Oracle, found: MinimizeResult
) -> str:
    """The program as it enters the pack: formatted, and failing by itself where that is still the
    same failure.
    """
    title, text = signature.title, found.text
    asker.ends = float("inf")  # the budget is for the reduction, which has ended
    if asker.limits.compares:
        told = asker.once(text).seen.comparison
        if told is not None and told.wrong:
            title = f"{title}: {told.wrong[0]}"
            text = _asserting(asker, found, told)
    elif asker.limits.sizes:
        part = same_failure.compiler_part(verdict.phase or "")
        is_built = costs.CHILDREN in part
        asker.limits = dataclasses.replace(
            asker.limits.eased(), stop=None
        )  # it compiles more than one graph
        if growth := asker.once(text).seen.growth:
            ratio = costs.allowed_ratio(growth, part, sized_program.least_s(is_built))
            text = sized_program.loop_over_sizes(
                text, asker.limits.knob, asker.limits.sizes, ratio, is_built
            )
    else:
        text = assertions.fail_loudly(
            text, verdict.kind, _healthy_graphs(asker, text, verdict.kind)
        )
        if verdict.kind == "graph-break" and not asker.holds(text):
            text = assertions.assert_unbroken(found.text)
    return readable.lay_out(
        text if text != found.text and asker.holds(text) else found.text, title, verdict.kind
    )


def _asserting(asker: Oracle, found: MinimizeResult, told: result_comparison.Comparison) -> str:
    """The program with an assertion that fails; as it was where there is none, with the reason in
    ``found.unproved``.
    """
    answers = []
    # with the second seed it draws what it drew in the comparison
    for seed in (
        (assertions.SEED, result_comparison.SEED)
        if assertions.draws_random(found.text)
        else (assertions.SEED,)
    ):
        text = assertions.with_check(found.text, told.wrong, told.is_random, seed)
        if text == found.text:
            found.unproved = f"no assertion can be written for what differs: {told.wrong[0]}"
            return text
        answers.append(asker.ask(text))
        if answers[-1] == same_failure.SAME:
            return text
    is_values = assertions.draws_random(found.text) and same_failure.PASSES in answers
    found.unproved = (
        f"with other values drawn for its inputs it passes: {proven.VALUES}"
        if is_values
        else "with an assertion of its own it does not fail in the same way"
    )
    return found.text


def _healthy_graphs(asker: Oracle, text: str, kind: str) -> int:
    """How many graphs the program has beside those that it compiles again."""
    if kind != "recompile-storm":
        return 1
    seen = asker.once(text).seen
    return max(
        1, sum(g.level == "dynamo" for g in seen.graphs) - sum(r.count for r in seen.recompiled)
    )
