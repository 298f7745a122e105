"""Documented limits of the compiler that a program meets: changing values, lines that Dynamo does
not trace, and what CUDA graphs do not allow.
"""

from __future__ import annotations

import re

from reprokit.core.judge import slow_calls
from reprokit.core.judge.responsible import ownership
from reprokit.core.judge.responsible.parties import Responsible
from reprokit.core.judge.stacks.frames import normalise_file, root_cause
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.remarks.cudagraph_skips import reason_family

_OF_VALUE = re.compile(
    r"^(?!.*\b(?:size|stride|dtype|rank|device|tensor)\b.* mismatch)"
    r"(?!.*(?:tensorify|please file a bug)).* == "
)
"""A guard on the value of a Python object: ``L['self'].step == 3``. Dynamo's own specialization of
a float, which it then names, is not meant.
"""


_OF_OBJECT = re.compile(r"^___check_(?:obj|type)_id\(([^,]+),")
"""A guard on the identity of an object, which is a different one in each call."""
_CUDAGRAPH_LIMITS = {
    "mutated inputs": "The program writes to an input, which CUDA graphs do not allow.",
    "cpu device": "The program has a tensor on the CPU, which CUDA graphs do not allow.",
    "multiple devices": "Tensors are on several devices, which CUDA graphs do not allow.",
}
"""The limits that "CUDAGraph Trees" of PyTorch's documentation names, by the reason of a skip."""
_SPECIALIZED = re.compile(
    r"You marked (\S+) as dynamic but your code specialized it to be a constant \((\S+?)\)"
)
_CONVERSIONS = ("convert_element_type", "_to_copy", "aten.to.")
"""Parts of the names of operators that convert a tensor."""
_IN_EAGER = "may result in an error when running in eager"
"""Part of a hint of Dynamo."""
_MAY_FAIL_IN_EAGER = Responsible(
    "unknown", ("Dynamo's message says that the line may fail without torch.compile too.",)
)
_ASKED_BREAK = re.compile(r"torch\._dynamo\.\w+\(\)|torch\.compiler\.disable")


def changing_value(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for recompiles because a value of the program changes, such as an attribute that
    counts steps, or because an object is a different one in each call. Dynamo compiles again for
    each value of a Python number, as its documentation says. Guards on sizes and types of tensors
    are not meant.
    """
    if verdict.kind not in ("recompile-limit", "recompile-storm") or not seen.recompiled:
        return None
    worst = seen.recompiled[0]
    line = re.match(r"(?P<file>.+?):\d+", worst.where)
    is_own = ownership.is_own(line["file"] if line is not None else worst.file)
    guards = [of_value[-1] for of_value in worst.changing]
    if is_own and guards and (match := _OF_OBJECT.search(guards[0])):
        why = f"The compiled code depends on an object that differs between calls: {match[1]}."
        return Responsible("user", (why,), worst.caller)
    numbers = [guard for guard in guards if _OF_VALUE.search(guard)]
    if not is_own or not numbers or (line is None and numbers[0] is guards[0]):
        return None
    what = "a value that changes" if len(guards) < 2 else "values that change"
    why = f"The compiled code depends on {what}: {worst.changes}."
    return Responsible("user", (why,), line.group() if line is not None else worst.caller)


def broken_graph(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a graph break that the program asks for, or at a line that Dynamo does not trace by
    design, as it says itself.
    """
    broken = next((b for b in seen.breaks if b.reason == verdict.cause), None)
    if verdict.kind != "graph-break" or broken is None:
        return None
    file = broken.where.rpartition(":")[0]
    is_own, is_torchs = ownership.is_own(file), normalise_file(file).startswith("torch/")
    if is_torchs and _ASKED_BREAK.search(broken.reason):
        return Responsible("unknown", ("torch itself asks for this graph break.",))
    if not is_own:
        return None
    hints = " ".join(broken.hints)
    if _ASKED_BREAK.search(broken.reason):
        why = "The program asks for the graph break."
    elif broken.settings:
        why = f"Dynamo's message names a setting for this line: `{broken.settings[0]} = True`."
    elif "This graph break is fundamental" in hints:
        why = "Dynamo's message calls this graph break fundamental: it does not trace such a line."
    elif _IN_EAGER in hints:
        return _MAY_FAIL_IN_EAGER
    else:
        return None
    return Responsible("user", (why,), broken.where)


def may_fail_in_eager(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for an error of a line that Dynamo runs on fake tensors, of which its message says that
    it may occur without torch.compile too, where no other run shows what it needs.
    """
    is_open = not (seen.eager or seen.fails_only_with) and verdict.kind == "exception"
    if not is_open or seen.raised is None or _IN_EAGER not in root_cause(seen.raised).message:
        return None
    return _MAY_FAIL_IN_EAGER


def specialized_size(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a size that the program marks as dynamic, and that its code fixes."""
    if verdict.kind != "exception":
        return None
    match = specialization(seen)
    if match is None:
        return None
    place = ownership.traced_own(seen)
    size, value = match.groups()
    why = f"The program marks {size} as dynamic, and its code allows only {value}."
    return Responsible("user", (why,), place.at if place is not None else "")


def specialization(seen: Observation) -> re.Match[str] | None:
    """Return the size that the program marks as dynamic, and the only value that its code allows,
    from Dynamo's message; None if it says no such thing.
    """
    return _SPECIALIZED.search(root_cause(seen.raised).message) if seen.raised else None


def index_out_of_bounds(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a compiled kernel that aborts because an index is out of bounds, which eager may
    report as well.
    """
    if verdict.kind != "crash" or "index out of bounds" not in verdict.reason:
        return None
    why = "Compiled code checks each index, and nothing shows whether eager accepts this one."
    return Responsible("unknown", (why,))


def undefined_conversion(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for wrong results of a conversion of a float that its integer type cannot hold, which
    C++ leaves undefined. Maintainers closed one report for that reason (pytorch/pytorch#131910),
    and others are open, so nobody is named.
    """
    if verdict.kind != "wrong-result" or not seen.undefined:
        return None
    why = (
        f"The program converts a value from {seen.undefined} that does not fit, and the result of"
        " such a conversion is undefined."
    )
    wrong = seen.comparison.wrong if seen.comparison is not None else ()
    is_there = (
        any(name in seen.departs for name in _CONVERSIONS)
        if seen.departs
        else any(one.what == "integers" for one in wrong)
    )
    return Responsible("unknown", (why,), seen.undefined_at) if is_there else None


def skipped_cuda_graph(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a CUDA graph that Inductor skips because of a documented limit of CUDA graphs."""
    if verdict.kind != "cudagraph-skip" or not seen.skips:
        return None
    why = _CUDAGRAPH_LIMITS.get(reason_family(seen.skips[0].reason))
    file, _, _ = seen.skips[0].where.partition(":")
    if why is None or not file or not ownership.is_own(file):
        return None
    line = re.match(r".+?:\d+", seen.skips[0].where)
    return Responsible("user", (why,), line.group() if line else "")


def cost_of_calls(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for calls that are slow by what each compiled call costs, not by what it computes."""
    if verdict.kind != "slower" or verdict.cause not in slow_calls.COSTS_OF_CALLS | {None}:
        return None
    why = (
        f"Each compiled call has this cost: {verdict.cause}."
        if verdict.cause
        else "Nothing shows which part of a call is slow."
    )
    return Responsible("unknown", (why,))
