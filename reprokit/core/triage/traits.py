"""What of one failure is compared with others: its traits, from the records of the run."""

from __future__ import annotations

from reprokit.core.judge.stacks import evidence
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.triage.likeness import Traits

FRAMES = 12
"""More than a signature has: bugs that are one often part in the innermost frames."""


def traits_of_failure(
    verdict: Verdict, seen: Observation, signed: Signature, rung: str = ""
) -> Traits:
    """The traits of a failure; ``rung`` is the first ablation step at which it fails."""
    frames, _ = fr.RULES.significant(_frames(verdict, seen), FRAMES)
    return Traits(
        verdict.kind,
        verdict.phase or "",
        verdict.cause or "",
        _message(verdict, signed),
        tuple(fr.show_frame(frame) for frame in frames),
        rung or seen.first_rung,
        seen.departs,
    )


def _frames(verdict: Verdict, seen: Observation) -> tuple[Frame, ...]:
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
    """What the title says beside the frames; of hangs and of wrong results nothing that would tell
    two apart.
    """
    if verdict.kind in ("hang", "slow-compile", "wrong-result"):
        return ""
    what = signed.title.partition(" | ")[2]
    return what.split(" in torch/")[0].split(" @ ")[0]
