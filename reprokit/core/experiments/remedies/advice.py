"""What a user can change, in words, where a limit of the compiler or the program is the cause.

Nothing here was tried on the user's program.
"""

from __future__ import annotations

import re

from reprokit.core.judge import slow_calls
from reprokit.core.judge.hangs import lock_cycles, wait_graph, wait_words
from reprokit.core.judge.responsible.documented_limits import specialization
from reprokit.core.judge.stacks.frames import root_cause
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.recompiles import GraphBreak, RecompiledFunction
from reprokit.core.records.remarks.cudagraph_skips import CudagraphSkip
from reprokit.core.records.speed import Speed

_GENERAL_HINTS = re.compile(
    r"fundamental|may be possible to write|report an issue|may result in an error when running in"
    r" eager|earlier graph break|difficult to debug|troubleshooting|TORCH_LOGS|debug context",
    re.IGNORECASE,
)
"""Hints of Dynamo that name no change of the program. Source: torch/_dynamo/graph_break_hints.py of
torch 2.9 to 2.15.
"""

MANY_GUARDS = 10
"""More guards on values at one line are a list of numbers."""
GUARDS: tuple[tuple[str, str], ...] = (
    (
        r"tensor '(?P<name>[\w.]+)' size mismatch at index (?P<dim>\d+)",
        "mark the size as dynamic before each call: torch._dynamo.mark_dynamic({name}, {dim})",
    ),
    (
        r"tensor '(?P<name>[^']+)' stride mismatch",
        "give {name} the same layout in each call, such as with .contiguous()",
    ),
    (
        r"tensor '(?P<name>[^']+)' (?P<what>dtype|device|rank|requires_grad)[ \w]* mismatch",
        "give {name} the same {what} in each call",
    ),
    (r"^len\((?P<name>[^)]+)\) == ", "keep the length of {name} fixed, or pass one tensor instead"),
    (
        r"___check_(?:obj_id|type_id)\(self[,.]",
        "each object compiles the function anew: set torch._dynamo.config.recompile_limit to more"
        " than the number of objects",
    ),
    (
        r"___check_(?:obj_id|type_id)\((?P<name>[^,]+),|(?P<other>\S+) is (?:not )?<",
        "create {name} once, outside of the loop that calls the compiled function",
    ),
    (
        r"^GLOBAL_STATE changed: (?P<name>[\w ]+)|(?P<other>grad_mode|inference_mode)",
        "call it with the same {name} each time, or compile one function for each",
    ),
    (r"\.training == ", "compile the model once for training and once for evaluation"),
    (r"^(?P<name>[\w.\[\]']+) == ['\"]", "compile one function for each value of {name}"),
    (
        r"^G\['(?P<name>\w+)'\] == |^(?P<other>[a-z_]\w*) == ",
        "pass {name} to the compiled function as a tensor: torch.tensor({name})",
    ),
    (r"^(?P<name>[\w.\[\]']+) == ", "hold the number in a tensor: {name} = torch.tensor(...)"),
    (r"\[['\"]?(?P<name>\w+)['\"]?\] in |not in ", "use the same keys in each call"),
)
"""A pattern of the guard that fails, and what to change. Source: the messages of Dynamo's guards in
torch 2.9 to 2.15, and "Dealing with recompilations" of PyTorch's documentation.
"""

SKIPS: tuple[tuple[str, str], ...] = (
    (
        r"mutated inputs",
        "write to a copy of the input, or call torch._dynamo.mark_static_address(x) once if the"
        " tensor stays the same",
    ),
    (r"cpu device", "move the tensor to the GPU before the call"),
    (r"multiple devices", "keep all tensors of the compiled function on one GPU"),
    (
        r"dynamic|symbolic",
        "use fixed sizes, such as padded batches, or torch.compile(dynamic=False)",
    ),
    (r"incompatible op|nondeterministic", "call the operator outside of the compiled function"),
)
"""A pattern of the reason for a skipped CUDA graph, and what to change. Source: "CUDAGraph Trees"
of PyTorch's documentation, and torch/_inductor/cudagraph_utils.py.
"""


def advise(verdict: Verdict, seen: Observation) -> str:
    """Return what to change, as a clause without a period; empty if nothing is known."""
    if verdict.kind in ("recompile-limit", "recompile-storm") and seen.recompiled:
        return _for_recompiles(seen.recompiled[0])
    if verdict.kind == "graph-break":
        broken = next((b for b in seen.breaks if b.reason == verdict.cause), None)
        return _for_break(broken) if broken is not None else ""
    if verdict.kind == "cudagraph-skip" and seen.skips:
        return _for_skip(seen.skips[0])
    if verdict.kind == "slower" and seen.speed:
        return _for_slow_calls(verdict, seen, seen.speed)
    if verdict.kind == "hang" and lock_cycles.find_cycle(seen):
        return "take these locks in the same order in all threads"
    if verdict.kind == "hang" and (stuck := wait_graph.find_stuck(seen)):
        return wait_words.why_stuck(stuck, seen).advice
    if verdict.kind == "exception" and specialization(seen):
        return "call torch._dynamo.maybe_mark_dynamic instead of mark_dynamic"
    if verdict.kind == "crash" and "index out of bounds" in verdict.reason:
        return (
            "check the indices that the program passes, such as ids against the rows of an"
            " embedding; without torch.compile an error may name the line"
        )
    if verdict.kind == "error-in-eager" and (module := missing_module(seen)):
        return f"name an interpreter that has {module}, such as .venv/bin/python, or install it"
    return ""


def missing_module(seen: Observation) -> str:
    """Return the module that the program could not import; empty if that is not why it failed."""
    if seen.raised is None:
        return ""
    root = root_cause(seen.raised)
    match = re.match(r"No module named '([\w.]+)'", root.message)
    return match[1] if match and root.type.endswith("ModuleNotFoundError") else ""


def _for_recompiles(worst: RecompiledFunction) -> str:
    advised = [_for_guard(guards[-1]) for guards in worst.changing]
    return "; ".join(dict.fromkeys(filter(None, advised)))


def _for_guard(guard: str) -> str:
    for pattern, advice in GUARDS:
        if match := re.search(pattern, guard):
            found = {name: value for name, value in match.groupdict().items() if value}
            named = {"name": found.get("name") or found.get("other") or "it", **found}
            return advice.format(**named)
    return ""


def _for_break(broken: GraphBreak) -> str:
    """Return Dynamo's own hints that name a change."""
    if broken.caller not in ("", broken.where):
        return ""  # the hint is about a line of a package
    hints = [hint for hint in broken.hints if not _GENERAL_HINTS.search(hint)]
    # a hint about a pattern is longer than one that names what to do
    shortest = min(hints, key=len, default="").strip().rstrip(".")
    return f"torch says: {shortest}" if shortest else ""


def _for_slow_calls(verdict: Verdict, seen: Observation, speed: Speed) -> str:
    if verdict.cause == slow_calls.GUARDS:
        count, code = speed.guards.get("line_guards", 0), str(speed.guards.get("code", ""))
        ways = [
            f"hold the {count} values in one object, such as a tensor"
            if count > MANY_GUARDS and " == " in code
            else "let the compiled function read fewer objects",
            *map(str, speed.guards.get("settings", ())),
        ]
        return "; or ".join(ways)
    if verdict.cause == slow_calls.BREAKS:
        hint = _for_break(seen.breaks[0]) if seen.breaks else ""
        return f"remove the graph break{f': {hint}' if hint else ''}"
    if verdict.cause == slow_calls.OVERHEAD:
        return "compile a larger function, such as the loop that calls it, or run it in eager"
    if verdict.cause == slow_calls.COPIES:
        return "pass tensors that are contiguous, such as x.contiguous() once before the calls"
    if verdict.cause:
        return "run this operator in eager: call it in a function with @torch.compiler.disable"
    return ""


def _for_skip(skip: CudagraphSkip) -> str:
    return next((advice for pattern, advice in SKIPS if re.search(pattern, skip.reason)), "")
