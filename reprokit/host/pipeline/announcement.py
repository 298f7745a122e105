"""What a capture prints as soon as its verdict is known, before it studies the failure."""

from __future__ import annotations

from reprokit.core.experiments.ablation import own_variants
from reprokit.host.experiments import follow_up, run_ablation
from reprokit.host.pipeline import study_steps
from reprokit.host.pipeline.state import State
from reprokit.host.report import headline, users_line


def announcement_of(state: State) -> list[str]:
    """Return the verdict, the user's own line, and the next steps; nothing without a next step."""
    steps = next_steps(state)
    if not steps:
        return []
    lines = [headline.headline(state.verdict)[0]]
    if place := users_line.find_users_line(state.verdict, state.seen):
        lines.append(f"    your line: {place}")
    elif function := users_line.find_compiled_function(state.journals, state.verdict, state.seen):
        lines.append(f"    compiling: {function}")
    return [*lines, f"    next: {'; '.join(steps)}; Ctrl-C ends this early"]


def next_steps(state: State) -> list[str]:
    """Return what the later steps of this capture do, in words."""
    request, steps = state.request, []
    if not state.seen.stage and follow_up.wants_follow_up(request, state.verdict, state.ended):
        steps.append("run it again for a shorter time to learn more about the hang")
    if study_steps.can_locate(state):
        steps.append(run_ablation.LOCATING.replace("locating", "locate"))
    if study_steps.can_minimize(state):
        steps.append(
            f"reduce the program (at most {request.budget_s:g} s), and prove the result in fresh"
            " processes"
        )
    if study_steps.can_ablate(state):
        count = len((*own_variants(state.seen), *run_ablation.IN_CAPTURE))
        steps.append(f"try at most {count} other backends and modes")
    return [*steps, "write the pack"] if steps else []


def announce_verdict(state: State) -> State:
    """Report the verdict before the steps that study the failure, which may take minutes."""
    for line in announcement_of(state):
        state.callbacks.say(line)
    return state
