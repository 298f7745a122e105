"""The identity of a verdict.

Key insight: the innermost cause and the place in the compiler where it surfaced name a bug;
everything that depends on the model, the machine or the run (sizes, generated names, paths, lines,
the user's own frames, how exceptions were wrapped) is blanked. ``explain`` says which was which.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence

from reprokit.core.judge.responsible import simulation_gaps
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import blamed_exception, fatal_fault, still_frames
from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.dumps import Frame, Raised
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared import result_comparison

ALGORITHM = 8
"""Rises whenever a title could change for the same evidence; ids of different algorithms never
compare.
"""

HANG_FRAMES = 3
CRASH_FRAMES = 3
EXCEPTION_FRAMES = 1

_FAKE = re.compile(
    r"Dynamo failed to run FX node with fake tensors:.*?: got"
    r" (?P<type>\w+)\((?P<quote>['\"])(?P<message>.*?)(?P=quote)\)\s*$",
    re.DOTALL | re.MULTILINE,
)
"""What an operator says of fake tensors. Which wrapper tells it, and from where, is another one in
each torch.
"""


def sign(verdict: Verdict, seen: Observation) -> Signature:
    """Give the signature of ``verdict``; a healthy run has one too, so that nothing needs a special
    case.
    """
    what, explain = _identity(verdict, seen)
    head = f"{verdict.kind}: {verdict.phase or 'no phase'}"
    title = f"{head} | {what}" if what else head
    digest = hashlib.sha256(f"{ALGORITHM}\n{title}".encode()).hexdigest()[:12]
    return Signature(
        digest, title, ALGORITHM, (f"kind {verdict.kind}", f"phase {verdict.phase}", *explain)
    )


def _identity(verdict: Verdict, seen: Observation) -> tuple[str, list[str]]:
    if verdict.kind == "ok":
        return "", ["a healthy run has no more identity than its kind"]
    if verdict.cause == simulation_gaps.CAUSE:
        return f"{simulation_gaps.CAUSE} {verdict.detail}", ["what reprokit does not simulate"]
    if verdict.kind == "slow-compile":
        return "", [
            "it was still advancing: where the deadline met it is chance, only the phase is kept"
        ]
    if verdict.kind == "superlinear-compile":
        law = str(verdict.cause).split(",")[0]
        what = f"{law} @ {verdict.work['frame']}" if verdict.work.get("frame") else law
        return what, [
            f"law {verdict.cause}: its numbers depend on the machine and the sizes, its class"
            " does not"
        ]
    if verdict.kind == "hang" and seen.endless_line:
        return "unrolled loop", [
            "the line belongs to the user; that Dynamo traces each iteration of a loop is the bug"
        ]
    if verdict.kind == "hang":
        return _of_stacks(seen, verdict.phase == "kernel-run")
    if verdict.kind == "crash":
        return _of_crash(verdict, seen)
    if verdict.kind in ("recompile-limit", "recompile-storm") and seen.recompiled:
        guard = seen.recompiled[0].guard
        return guard, [f"{seen.recompiled[0].changes!r} read as {guard!r}"]
    if verdict.kind == "cudagraph-skip":
        return normalise_message(verdict.cause or ""), [
            "Inductor's reason, without the model's own names"
        ]
    if verdict.kind == "graph-break":
        return normalise_message(verdict.cause or ""), [
            "the type of the break in PyTorch's registry; the line is the user's"
        ]
    if verdict.kind == "wrong-result" and seen.comparison:
        what = result_comparison.difference_family(seen.comparison.wrong)
        why = f"{verdict.cause} are {what}: a few operators further it may be another kind of them"
        return what + (f" @ {seen.departs}" if seen.departs else ""), [why]
    raised = blamed_exception(seen)
    if raised is not None and verdict.kind in ("exception", "error-in-eager", "oom"):
        return _of_exception(raised)
    return verdict.cause or "", ["no stack and no exception: the cause alone"]


def _of_exception(raised: Raised) -> tuple[str, list[str]]:
    root = fr.root_cause(raised)
    explain = [
        f"exception chain {' > '.join(link.type for link in raised.chain)}: the innermost names"
        " the bug"
    ]
    if said := _FAKE.search(root.message):
        explain.append(f"an operator failed on fake tensors: {said['message'][:80]!r}")
        return f"{said['type']}: {normalise_message(said['message'])} @ fake tensors", explain
    message = normalise_message(root.message)
    explain.append(f"message {root.message[:80]!r} read as {message!r}")
    inward = raised.chain[: raised.chain.index(root) + 1]
    places = [link.frames for link in reversed(inward) if link.frames]
    kept: list[Frame] = []
    for frames in places:
        kept, why = fr.RULES.significant(fr.normalise_frames(frames), EXCEPTION_FRAMES)
        explain += why
        if kept:
            break
    name = root.type.removeprefix("builtins.")
    what = f"{name}: {message}" if message else name
    return (f"{what} @ {_names(kept)}" if kept else what), explain


def _of_crash(verdict: Verdict, seen: Observation) -> tuple[str, list[str]]:
    cause = verdict.cause or "signal"
    said = fr.parse_terminate(seen.stderr_tail)
    if said:
        return f"{cause} {normalise_message(said)}", [
            f"the C++ runtime said {said[:80]!r} before it aborted"
        ]
    fault = fatal_fault(seen)
    if fault is None:
        return cause, ["no Python stack of the crash: the signal alone"]
    frames = fr.normalise_frames(fault.frames)
    if (
        verdict.phase == "kernel-run"
    ):  # what called the compiled code, and how torch got there, is no part of it
        inside, why = _inside(frames)
        return f"{cause} in {inside}", why
    kept, why = fr.RULES.significant(frames, CRASH_FRAMES)
    return (f"{cause} in {_names(kept)}" if kept else cause), why


def _inside(frames: Sequence[Frame]) -> tuple[str, list[str]]:
    """Compiled code, and what is further in than it."""
    inner = tuple(itertools.takewhile(lambda f: not fr.enters_compiled(f), frames))
    kept, why = fr.RULES.significant(inner, CRASH_FRAMES - 1)
    return " < ".join([*map(fr.show_frame, kept), "<generated>:call"]), why


def _of_stacks(seen: Observation, is_running: bool) -> tuple[str, list[str]]:
    stable = still_frames(seen)
    if is_running and any(fr.enters_compiled(f) for f in stable):
        what, why = _inside(stable)
        return what, [f"{len(stable)} frames did not move between the dumps", *why]
    # A library below the compiler may be met anywhere in its own loop; who called it stays the
    # same.
    inside = [f for f in stable if f.file.startswith(("torch/", "triton/", "<"))]
    kept, why = fr.RULES.significant(inside, HANG_FRAMES)
    return _names(kept), [f"{len(stable)} frames did not move between the dumps", *why]


def _names(frames: list[Frame]) -> str:
    return " < ".join(fr.show_frame(f) for f in frames)
