"""What a capture prints as soon as its verdict is known, before it studies the failure."""

from __future__ import annotations

import re
from pathlib import Path

from reprokit.core.experiments.ablation import own_variants
from reprokit.core.judge.responsible import ownership
from reprokit.core.shared.contract.events import Progress
from reprokit.host.experiments import follow_up, run_ablation
from reprokit.host.pipeline import study_steps
from reprokit.host.pipeline.state import State
from reprokit.host.system import files, host_log

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?: in (?P<function>\S+))?")
MAX_SOURCE_CHARS = 100


def announcement_of(state: State) -> list[str]:
    """Return the verdict, the signature, the user's own line, and what the next steps are."""
    verdict = state.verdict
    where = "" if verdict.phase in (None, "eager") else f" in {verdict.phase}"
    lines = [f"{verdict.kind}{where}: {verdict.reason}", f"    signature: {state.signature.id}"]
    if place := users_line(state):
        lines.append(f"    your code: {place}")
    elif function := compiled_function(state):
        lines.append(f"    compiling: {function}")
    if steps := next_steps(state):
        lines.append(f"    next: {'; '.join(steps)}")
        lines.append("    Ctrl-C ends this early, and the pack has what is known by then")
    return lines


def users_line(state: State) -> str:
    """Return the innermost line of the user's code that is involved, with its text.

    It is the line that is responsible, that the compiler works on, or that is on the stack. Empty
    if no line is known.
    """
    verdict = state.verdict
    place = verdict.responsible_place or verdict.work.get("line", "")
    if not place:
        stack = ownership.stack_of(verdict, state.seen)
        own = ownership.innermost_own(stack)
        place = f"{own.at} in {own.function}" if own is not None else ""
    match = _PLACE.match(place)
    if match is None:
        return ""
    text = _source_line(Path(match["file"]), int(match["line"]))
    return f"{match[0]}: {text}" if text else match[0]


def compiled_function(state: State) -> str:
    """Return the function that Dynamo traced last, as ``NAME in FILE``; empty without one.

    Dynamo traces the user's code, so the stack of a failure after it has no frame of that code.
    """
    traced = [e.where for e in state.journals.events_of_type(Progress) if e.unit == "line"]
    match = _PLACE.match(traced[-1]) if traced else None
    return f"{match['function']} in {match['file']}" if match and match["function"] else ""


def _source_line(file: Path, number: int) -> str:
    with host_log.suppress(OSError):
        rows = files.read_text(file).splitlines()
        if 0 < number <= len(rows):
            return rows[number - 1].strip()[:MAX_SOURCE_CHARS]
    return ""


def next_steps(state: State) -> list[str]:
    """Return what the later steps of this capture do, in words."""
    request, steps = state.request, []
    if follow_up.wants_follow_up(request, state.verdict, state.ended):
        steps.append("run it again for a shorter time to learn more about the hang")
    if study_steps.can_locate(state):
        steps.append(run_ablation.LOCATING.replace("locating", "locate"))
    if study_steps.can_minimize(state):
        proofs = f"prove the result in {request.proofs + 2} fresh processes"
        steps.append(f"reduce the program (at most {request.budget_s:g} s) and {proofs}")
    if study_steps.can_ablate(state):
        count = len((*own_variants(state.seen), *run_ablation.IN_CAPTURE))
        steps.append(f"try {count} other backends and modes")
    return [*steps, "write the pack"] if steps else []
