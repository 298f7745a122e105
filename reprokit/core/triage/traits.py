"""The traits of a failure that are compared with others, from the records of the run."""

from __future__ import annotations

from reprokit.core.judge.stacks import evidence, location
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import NONDETERMINISTIC
from reprokit.core.triage.likeness import Traits

MAX_FRAMES = 12
"""More frames than a signature has, because the same bug often differs in the innermost frames."""


def traits_of_failure(
    verdict: Verdict, seen: Observation, signed: Signature, step: str = ""
) -> Traits:
    """Return the traits of a failure; ``step`` is the first ablation step that fails."""
    frames, _ = fr.RULES.significant_frames(frames_of_failure(verdict, seen), MAX_FRAMES)
    return Traits(
        verdict.kind,
        verdict.phase or "",
        verdict.cause or "",
        _message(verdict, signed),
        tuple(fr.show_frame(frame) for frame in frames),
        step or seen.failing_part,
        seen.departs,
        location.called_kernel(verdict.work.get("kernel", "")),
        seen.departs_in,
        verdict.responsible,
        seen.departs_first,
    )


def frames_of_failure(verdict: Verdict, seen: Observation) -> tuple[Frame, ...]:
    """Return the frames at which a run failed or stood still, innermost first."""
    if verdict.kind in ("hang", "slow-compile", "superlinear-compile"):
        return evidence.still_frames(seen)
    if verdict.kind == "crash":
        fault = evidence.fatal_fault(seen)
        return fr.normalise_frames(fault.frames) if fault else ()
    raised = evidence.blamed_exception(seen)
    if raised is None:
        return ()
    return next(
        (fr.normalise_frames(link.frames) for link in reversed(raised.chain) if link.frames), ()
    )


def _message(verdict: Verdict, signed: Signature) -> str:
    """Return the message in the signature; empty for hangs and wrong results, whose messages are
    all alike.
    """
    if verdict.kind in ("hang", "slow-compile", "wrong-result", NONDETERMINISTIC):
        return ""
    return signed.parts.what
