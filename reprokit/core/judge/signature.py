"""The identity of a verdict.

The innermost cause and the function of the compiler in which it occurred identify a bug. Everything
that depends on the model, the machine or the run (sizes, generated names, paths, lines, the user's
own frames, how exceptions were wrapped) is blanked. ``explain`` lists the steps.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import itertools
import re
from collections.abc import Sequence

from reprokit.core.judge.hangs import wait_graph
from reprokit.core.judge.responsible import simulation_gaps
from reprokit.core.judge.same_failure import CACHED, HEAP
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import blamed_exception, fatal_fault, still_frames
from reprokit.core.judge.stacks.location import plural
from reprokit.core.judge.stacks.messages import error_of_gpu_kernel, normalise_message
from reprokit.core.records.dumps import Frame, Raised
from reprokit.core.records.finding import Identity, Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import FAILED_CHECK, kind_named
from reprokit.core.shared import result_comparison
from reprokit.core.shared.operators import is_torch_namespace

ALGORITHM = 11
"""It is increased whenever a title could change for the same evidence. Ids of different algorithms
are never compared.
"""

ABORT = "C++ exception"
"""What happened in compiled code where the C++ runtime aborted."""
HANG_FRAMES = 3
CRASH_FRAMES = 3
EXCEPTION_FRAMES = 1

_FAKE = re.compile(
    r"Dynamo failed to run FX node with fake tensors: call_(?P<how>\w+)"
    r" (?:<(?:built-in )?(?:function|method) (?P<function>\w+)[^>]*>|(?P<name>[\w.]+))?.*?: got"
    r" (?P<type>\w+)\((?P<message>(?P<quote>['\"]).*?(?P=quote))\)\s*$",
    re.DOTALL | re.MULTILINE,
)
"""The exception of an operator on fake tensors, inside the message of a wrapper. The wrapper is
different in each torch.
"""


def sign_verdict(verdict: Verdict, seen: Observation) -> Signature:
    """Return the signature of ``verdict``; a healthy run has one too."""
    what, place, explain = _identity(verdict, seen)
    if verdict.stage:
        what = f"{CACHED}: {what}" if what else CACHED
        explain = [*explain, f"only with a cache: stage {verdict.stage}"]
    said = fr.parse_terminate(seen.stderr_tail) if verdict.kind == "crash" else ""
    site = seen.crash_site.identity if verdict.kind == "crash" and seen.crash_site else ""
    parts = Identity(verdict.kind, verdict.phase or "", what, place, normalise_message(said), site)
    if site:
        explain = [*explain, f"the sanitizers name the error and its operator: {site}"]
    digest = hashlib.sha256(f"{ALGORITHM}\n{parts.title}".encode()).hexdigest()[:12]
    steps = (f"kind {verdict.kind}", f"phase {verdict.phase}", *explain)
    return Signature(digest, parts.title, ALGORITHM, steps, parts)


def _identity(verdict: Verdict, seen: Observation) -> tuple[str, str, list[str]]:
    """Return what happened, where, and how both were found."""
    if verdict.kind == "ok":
        return "", "", ["a healthy run has no more identity than its kind"]
    if verdict.cause == simulation_gaps.CAUSE:
        return f"{simulation_gaps.CAUSE} {verdict.detail}", "", ["what reprokit does not simulate"]
    if verdict.kind == "slow-compile":
        return (
            "",
            "",
            ["it was still advancing, so its position at the deadline is chance: only the phase"],
        )
    if verdict.kind == "superlinear-compile":
        law = str(verdict.cause).split(",")[0]
        return (
            law,
            verdict.work.get("frame", ""),
            [
                f"law {verdict.cause}: its class does not depend on the machine and the sizes, its"
                " numbers do"
            ],
        )
    if verdict.kind == "hang" and seen.endless_line:
        return (
            "unrolled loop",
            "",
            ["the bug is that Dynamo traces each iteration of a loop; the line is the user's"],
        )
    if verdict.kind == "hang" and verdict.cause == "deadlock":
        kinds = ", ".join(sorted({wait.kind.name for wait in wait_graph.find_stuck(seen)}))
        _, where, explain = _of_stacks(seen, is_running=False)
        return f"deadlock of {kinds}", where, [*explain, "the kinds of waits that no thread ends"]
    if verdict.kind == "hang":
        return _of_stacks(seen, verdict.phase == "kernel-run")
    if verdict.kind == "crash":
        return _of_crash(verdict, seen)
    if verdict.kind in ("recompile-limit", "recompile-storm") and seen.recompiled:
        guard = seen.recompiled[0].guard
        return guard, "", [f"{seen.recompiled[0].changes!r} read as {guard!r}"]
    if verdict.kind == "cudagraph-skip":
        return (
            normalise_message(verdict.cause or ""),
            "",
            ["Inductor's reason, without the names of the model"],
        )
    if verdict.kind == "graph-break":
        return (
            normalise_message(verdict.cause or ""),
            "",
            ["the type of the break in PyTorch's registry; the line is the user's"],
        )
    if kind_named(verdict.kind).compares_results and seen.comparison:
        what = result_comparison.difference_family(seen.comparison.wrong)
        why = f"{verdict.cause} count as {what}: later operators may change the kind of difference"
        return what, seen.departs, [why]
    raised = blamed_exception(seen)
    if raised is not None and verdict.kind in ("exception", "error-in-eager", "oom"):
        return _of_exception(raised)
    if verdict.kind == FAILED_CHECK and raised is not None:
        what, _, explain = _of_exception(raised)
        return what, "", [*explain, "the check is the program's own, so it has no place in torch"]
    if verdict.kind == FAILED_CHECK or verdict.cause == "exit":
        return f"exit status {seen.exit_status}", "", ["how the program ended itself"]
    return verdict.cause or "", "", ["no stack and no exception: only the cause"]


def _of_exception(raised: Raised) -> tuple[str, str, list[str]]:
    root = fr.root_cause(raised)
    explain = [
        f"exception chain {' > '.join(link.type for link in raised.chain)}: the innermost"
        " identifies the bug"
    ]
    if fake := _FAKE.search(root.message):
        message = _quoted_message(fake["message"])
        operator = (fake["function"] or fake["name"] or "").removesuffix(".default")
        explain.append(f"{operator or 'an operator'} failed on fake tensors: {message[:80]!r}")
        space, dot, _ = operator.partition(".")
        # programs name their own operators and modules in any way
        is_named = operator and fake["how"] != "module" and (not dot or is_torch_namespace(space))
        place = f"{operator} with fake tensors" if is_named else "fake tensors"
        return f"{fake['type']}: {normalise_message(message)}", place, explain
    if error := error_of_gpu_kernel(root.message):
        explain.append("a later call reported this error of a kernel, so its stack says nothing")
        return f"kernel on a GPU: {error}", "", explain
    message = normalise_message(root.message)
    explain.append(f"message {root.message[:80]!r} read as {message!r}")
    inward = raised.chain[: raised.chain.index(root) + 1]
    stacks = [link.frames for link in reversed(inward) if link.frames]
    kept: list[Frame] = []
    for frames in stacks:
        kept, why = fr.RULES.significant_frames(fr.normalise_frames(frames), EXCEPTION_FRAMES)
        explain += why
        if kept:
            break
    name = root.type.removeprefix("builtins.")
    return f"{name}: {message}" if message else name, _names(kept), explain


def _quoted_message(quoted: str) -> str:
    """Return a message that another message has as a Python literal, without the stack of C++ that
    torch appends.
    """
    message = quoted[1:-1]
    with contextlib.suppress(SyntaxError, ValueError):  # the quote of a long message may be cut
        message = str(ast.literal_eval(quoted))
    return message.partition("\nException raised from ")[0]


def _of_crash(verdict: Verdict, seen: Observation) -> tuple[str, str, list[str]]:
    cause = verdict.cause or "signal"
    error = fr.parse_terminate(seen.stderr_tail)
    if error and verdict.phase == "kernel-run":
        race = "threads that throw at the same time cut the message of the C++ runtime"
        return f"{cause} {ABORT}", "", [f"{race}, so {error[:80]!r} is left out"]
    if error:
        return (
            f"{cause} {normalise_message(error)}",
            "",
            [f"the C++ runtime reported {error[:80]!r} before it aborted"],
        )
    if error := fr.parse_heap_error(seen.stderr_tail):
        chance = f"glibc reported {error!r}: which call finds a damaged heap is chance"
        return f"{cause} {HEAP}", "", [chance]
    fault = fatal_fault(seen)
    if fault is None:
        return cause, "", ["no Python stack of the crash: only the signal"]
    frames = fr.normalise_frames(fault.frames)
    # the callers of the compiled code are not part of the bug
    if verdict.phase == "kernel-run":
        inside, why = _inside(frames)
        return cause, inside, why
    kept, why = fr.RULES.significant_frames(frames, CRASH_FRAMES)
    return cause, _names(kept), why


def _inside(frames: Sequence[Frame]) -> tuple[str, list[str]]:
    """Return compiled code and the frames further in, innermost first, and how they were chosen."""
    inner = tuple(itertools.takewhile(lambda f: not fr.enters_compiled(f), frames))
    kept, why = fr.RULES.significant_frames(inner, CRASH_FRAMES - 1)
    return " < ".join([*map(fr.show_frame, kept), "<generated>:call"]), why


def _of_stacks(seen: Observation, is_running: bool) -> tuple[str, str, list[str]]:
    stable = still_frames(seen)
    if is_running and any(fr.enters_compiled(f) for f in stable):
        inside, why = _inside(stable)
        return "", inside, [f"{plural(len(stable), 'frame')} did not move between the dumps", *why]
    # the position inside a library below the compiler is chance; its caller is always the same
    below = [f for f in stable if f.file.startswith(("torch/", "triton/", "<"))]
    kept, why = fr.RULES.significant_frames(below, HANG_FRAMES)
    return (
        "",
        _names(kept),
        [f"{plural(len(stable), 'frame')} did not move between the dumps", *why],
    )


def _names(frames: list[Frame]) -> str:
    return " < ".join(fr.show_frame(f) for f in frames)
