"""The identity of a verdict.

Key insight: the innermost cause and the place in the compiler where it surfaced name a bug; everything
that depends on the model, the machine or the run (sizes, generated names, paths, lines, the user's own
frames, how exceptions were wrapped) is blanked. ``explain`` says which was which.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence

from . import frames as fr
from . import results, simulation
from .facts import recent
from .records import Fault, Frame, Observation, Raised, Signature, Verdict

ALGORITHM = 8
"""Rises whenever a title could change for the same evidence; ids of different algorithms never compare."""

MESSAGE_CHARS = 160
HANG_FRAMES = 3
CRASH_FRAMES = 3
EXCEPTION_FRAMES = 1

_BOILERPLATE = (
    r"\s*Set TORCHDYNAMO_VERBOSE=1.*",
    r"\s*You can suppress this exception.*",
    r"\s*To suppress .*",
    r"\s*from user code:.*",
    r"\s*For more details about this graph break.*",
    r"\s*For even more developer context.*",
)
_CUT = re.compile("|".join(f"(?:{b})" for b in _BOILERPLATE), re.DOTALL)
_COMPILER_ERROR = re.compile(r"(?:^|\s)(?:fatal )?error:\s*(?P<text>.+?)$", re.MULTILINE)
_PTXAS_ERROR = re.compile(r"^ptxas\S*(?: \S+, line \d+;)?\s+(?:fatal|error)\s*:\s*(?P<text>.+)$", re.MULTILINE)
_TRITON_ERROR = re.compile(r"^at \d+:\d+:\n(?:.*\n)*?\s*\^\s*\n(?P<text>.+)$", re.MULTILINE)
"""What Triton shows of the kernel's source stands before what it says of it."""
_KEEP = r"(?:bfloat16|float\d+(?:_e\dm\d\w*)?|u?int\d+(?:_t)?|complex\d+|sm_\d+[af]?|compute_\d+[af]?|std\d+|fp\d+\w*|[iuf]\d{1,2}(?=\W)|c10d?|cu\d\d|dim\d?d|conv[123]d|pool[123]d|log1p|log2|log10|exp2|atan2|index_put2|SIG\w+)"
_FAKE = re.compile(
    r"Dynamo failed to run FX node with fake tensors:.*?: got (?P<type>\w+)\((?P<quote>['\"])(?P<message>.*?)(?P=quote)\)\s*$",
    re.DOTALL | re.MULTILINE,
)
"""What an operator says of fake tensors. Which wrapper tells it, and from where, is another one in each torch."""
_HIDDEN = r"<(?:token|key|credentials|user|host|home|email|ip|mac|cut)(?:-\d+)?>"
_BLANK: tuple[tuple[str, str], ...] = (
    # the number of a secret depends on the other secrets of the run
    (r"<(token|key|credentials|user|host|email|ip|mac|cut)-\d+>", r"<\1>"),
    (r"\b[LG]\[['\"]\w+['\"]\](?:\[[^\]]*\]|\.\w+\(\)|\.\w+)*", "<input>"),
    (r"0x[0-9a-fA-F]+", "<addr>"),
    (rf"(?:(?:/|~/|<home>/)(?:[\w.+@~-]|{_HIDDEN})+)+/?[\w.+@~-]*", "<path>"),
    (r"\b[cf]?[a-z2-7]{45,}\b|\b[0-9a-f]{16,}\b", "<hash>"),
    (r"\b[Ll]_\w+", "<input>"),
    (r"torch\.Size\(\[[^\]]*\]\)", "<shape>"),
    (r"[\[(]\s*-?[su]?\d+(?:\s*,\s*-?[su]?\d+)*\s*,?\s*[\])]", "<shape>"),
    (r"\b(?:line|pid|process|thread) \d+", "<where>"),
    # FX numbers the second node of a name: erf_4 in a model is erf in its smallest program
    (r"\b(?!sm_|compute_|cuda_)([A-Za-z]\w*?[A-Za-z])_\d+\b", r"\1"),
)
_BLANKS = [(re.compile(pattern), text) for pattern, text in _BLANK]
_NUMBER = re.compile(rf"(?P<keep>\b{_KEEP}\b)|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:UL|L|u|l)?")


def telling_line(message: str) -> str:
    """The line of a message that says what went wrong: a compiler's first ``error:``, else the first line."""
    text = _CUT.sub("", message)
    if found := _PTXAS_ERROR.search(text) or _TRITON_ERROR.search(text):
        return found["text"].strip()
    if found := _COMPILER_ERROR.search(text):
        text = found["text"]
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def normalise_message(message: str) -> str:
    """Reduce a message to what does not depend on the model, the machine or the run.

    Compiler output (up to 96 kB, the command first) becomes its first ``error:`` line.
    """
    text = telling_line(message)
    for pattern, blank in _BLANKS:
        text = pattern.sub(blank, text)
    text = _NUMBER.sub(lambda m: m["keep"] or "#", text)
    text = re.sub(r"[‘’`]", "'", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 3] + "..."


def sign(verdict: Verdict, seen: Observation) -> Signature:
    """Give the signature of ``verdict``; a healthy run has one too, so that nothing needs a special case."""
    what, explain = _identity(verdict, seen)
    head = f"{verdict.kind}: {verdict.phase or 'no phase'}"
    title = f"{head} | {what}" if what else head
    digest = hashlib.sha256(f"{ALGORITHM}\n{title}".encode()).hexdigest()[:12]
    return Signature(digest, title, ALGORITHM, (f"kind {verdict.kind}", f"phase {verdict.phase}", *explain))


def _identity(verdict: Verdict, seen: Observation) -> tuple[str, list[str]]:
    if verdict.kind == "ok":
        return "", ["a healthy run has no more identity than its kind"]
    if verdict.cause == simulation.CAUSE:
        return f"{simulation.CAUSE} {verdict.detail}", ["what reprokit does not simulate"]
    if verdict.kind == "slow-compile":
        return "", ["it was still advancing: where the deadline met it is chance, only the phase is kept"]
    if verdict.kind == "superlinear-compile":
        law = str(verdict.cause).split(",")[0]
        what = f"{law} @ {verdict.work['frame']}" if verdict.work.get("frame") else law
        return what, [f"law {verdict.cause}: its numbers depend on the machine and the sizes, its class does not"]
    if verdict.kind == "hang" and seen.endless_line:
        return "unrolled loop", ["the line belongs to the user; that Dynamo traces each iteration of a loop is the bug"]
    if verdict.kind == "hang":
        return _of_stacks(seen, verdict.phase == "kernel-run")
    if verdict.kind == "crash":
        return _of_crash(verdict, seen)
    if verdict.kind in ("recompile-limit", "recompile-storm") and seen.recompiled:
        guard = seen.recompiled[0].guard
        return guard, [f"{seen.recompiled[0].changes!r} read as {guard!r}"]
    if verdict.kind == "cudagraph-skip":
        return normalise_message(verdict.cause or ""), ["Inductor's reason, without the model's own names"]
    if verdict.kind == "graph-break":
        return normalise_message(verdict.cause or ""), [
            "the type of the break in PyTorch's registry; the line is the user's"
        ]
    if verdict.kind == "wrong-result" and seen.comparison:
        what = results.family(seen.comparison.wrong)
        why = f"{verdict.cause} are {what}: a few operators further it may be another kind of them"
        return what + (f" @ {seen.departs}" if seen.departs else ""), [why]
    raised = blamed(seen)
    if raised is not None and verdict.kind in ("exception", "error-in-eager", "oom"):
        return _of_exception(raised)
    return verdict.cause or "", ["no stack and no exception: the cause alone"]


def _of_exception(raised: Raised) -> tuple[str, list[str]]:
    root = fr.root(raised)
    explain = [f"exception chain {' > '.join(link.type for link in raised.chain)}: the innermost names the bug"]
    if said := _FAKE.search(root.message):
        explain.append(f"an operator failed on fake tensors: {said['message'][:80]!r}")
        return f"{said['type']}: {normalise_message(said['message'])} @ fake tensors", explain
    message = normalise_message(root.message)
    explain.append(f"message {root.message[:80]!r} read as {message!r}")
    inward = raised.chain[: raised.chain.index(root) + 1]
    places = [link.frames for link in reversed(inward) if link.frames]
    kept: list[Frame] = []
    for frames in places:
        kept, why = fr.RULES.significant(fr.normalise(frames), EXCEPTION_FRAMES)
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
        return f"{cause} {normalise_message(said)}", [f"the C++ runtime said {said[:80]!r} before it aborted"]
    fault = fatal(seen)
    if fault is None:
        return cause, ["no Python stack of the crash: the signal alone"]
    frames = fr.normalise(fault.frames)
    if verdict.phase == "kernel-run":  # what called the compiled code, and how torch got there, is no part of it
        inside, why = _inside(frames)
        return f"{cause} in {inside}", why
    kept, why = fr.RULES.significant(frames, CRASH_FRAMES)
    return (f"{cause} in {_names(kept)}" if kept else cause), why


def _inside(frames: Sequence[Frame]) -> tuple[str, list[str]]:
    """Compiled code, and what is further in than it."""
    inner = tuple(itertools.takewhile(lambda f: not fr.enters_compiled(f), frames))
    kept, why = fr.RULES.significant(inner, CRASH_FRAMES - 1)
    return " < ".join([*map(fr.show, kept), "<generated>:call"]), why


def _of_stacks(seen: Observation, is_running: bool) -> tuple[str, list[str]]:
    stable = still_frames(seen)
    if is_running and any(fr.enters_compiled(f) for f in stable):
        what, why = _inside(stable)
        return what, [f"{len(stable)} frames did not move between the dumps", *why]
    # A library below the compiler may be met anywhere in its own loop; who called it stays the same.
    inside = [f for f in stable if f.file.startswith(("torch/", "triton/", "<"))]
    kept, why = fr.RULES.significant(inside, HANG_FRAMES)
    return _names(kept), [f"{len(stable)} frames did not move between the dumps", *why]


def blamed(seen: Observation) -> Raised | None:
    """The exception that the verdict is about.

    A program may wrap what the compiler raised (``except Exception: raise MyError``) or fail later because of it:
    what left the compiler counts then.
    """
    raised, failures = seen.raised, seen.compile_failures
    if raised is None or not failures:
        return raised or (failures[-1] if failures else None)
    return raised if is_compilers(raised, seen) else failures[-1]


def is_compilers(raised: Raised, seen: Observation) -> bool:
    """The exception came from the compiler, or from code that it made."""
    frames = fr.normalise(f for link in raised.chain for f in link.frames)
    return fr.RULES.is_compiled(frames) or any(is_same(raised, failure) for failure in seen.compile_failures)


def is_same(a: Raised, b: Raised) -> bool:
    """Two hooks saw one exception."""
    one, two = fr.root(a), fr.root(b)
    return one.type == two.type and one.message[:200] == two.message[:200]


def fatal(seen: Observation) -> Fault | None:
    """The fatal signal's stack: of the process whose story is told, if it left one."""
    own = [f for f in seen.faults if f.frames and f.pid == seen.main_pid]
    return next(iter(own), next((f for f in seen.faults if f.frames), None))


def still_frames(seen: Observation) -> tuple[Frame, ...]:
    """The frames of the thread at work, innermost first, that did not move since the last progress."""
    return fr.stable_part(main_stacks(recent(seen)))


def main_stacks(seen: Observation) -> list[tuple[Frame, ...]]:
    """Normalised stacks of the target's main thread, one a dump, from the tool that gave most of them."""
    return max(stacks_by_tool(seen).values(), key=len, default=[])


def stacks_by_tool(seen: Observation, is_raw: bool = False) -> dict[str, list[tuple[Frame, ...]]]:
    """Stacks of the thread at work, in the order of the dumps, by the tool that took them; normalised unless ``is_raw``.

    That is the thread with compiler phases open, else the main one; faulthandler does not tell threads apart.
    """
    found: dict[str, list[tuple[Frame, ...]]] = {}
    for dump in sorted(seen.dumps, key=lambda d: (d.tool != "py-spy", d.number)):  # it names methods in full
        if dump.pid != seen.main_pid or (seen.working_tid and dump.tool == "faulthandler"):
            continue
        wanted = [
            t for t in dump.threads if t.frames and (t.tid == seen.working_tid if seen.working_tid else t.is_main)
        ]
        if wanted:
            frames = wanted[0].frames
            found.setdefault(dump.tool, []).append(frames if is_raw else fr.normalise(frames))
    return found


def _names(frames: list[Frame]) -> str:
    return " < ".join(fr.show(f) for f in frames)
