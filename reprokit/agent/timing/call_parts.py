"""Say which parts of a warm compiled call take the time: guards, generated kernels, operators.

The calls run under torch's profiler, which already marks the look-up of a compiled function, its
run, and each operator. Each kernel that Inductor generated is marked too.
"""

from __future__ import annotations

import bisect
import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...core.shared.contract import events
from ...core.shared.tracebacks import user_line
from ..record import journal
from ..torch_hooks import symbols
from . import call_times, guard_costs
from .call_times import Side

MAX_PARTS = 40
"""Limit of the kernels and operators that are journaled, the most expensive ones."""
MIN_PASSES, MAX_PASSES, MAX_EVENTS = 4, 40, 20_000
"""Limits of the passes that are profiled, and of their events."""
GUARD_BLOCKS, GUARD_S = 40, 1.0
"""Limits of the blocks in which calls with and without guards are timed, and of their seconds."""
_LOOK_UP, _REGION = "TorchDynamo Cache Lookup", "Torch-Compiled Region"
_COMPILED = (_REGION, "## Call CompiledFxGraph", "CompiledFunction")
"""How the names of the profiler's events begin that surround compiled code."""
_MARK, _PASS = "reprokit kernel ", "reprokit pass"
_OPERATOR = re.compile(r"(?!autograd::)[a-z_0-9]+::\w")
_GENERATED = re.compile(r"(?:cpp|triton)_\w+")
_SOURCES = re.compile(r"Source Nodes: \[(?P<nodes>.*?)\], Original ATen: \[(?P<ops>.*?)\]")
_CALLED = re.compile(
    r"\b(?P<kernel>(?:cpp|triton)_\w+)(?:\.run)?\(|\bextern_kernels\.(?P<extern>\w+)\(|"
    r"\b(?:torch\.ops\.)?(?:aten|mkldnn|onednn|quantized)\.(?P<op>\w+)"
)
_traced_lines: dict[str, str] = {}
"""The user's line of each node of Dynamo's graphs."""
_sources: dict[str, tuple[list[str], str]] = {}
"""The operators of each kernel and operator in generated code, and the user's line of the last."""


def prepare() -> None:
    """Keep what the compiles tell about guards and lines. It is called before the first compile.

    A graph from a cache does not tell which lines its kernels are.
    """
    symbols.attempt_hook(guard_costs.keep_trees)
    symbols.attempt_hook(_hook_lines)
    symbols.attempt_hook(_hook_kernels)


def _hook_lines() -> None:
    symbols.wrap_symbol("torch._dynamo.output_graph:OutputGraph._call_user_compiler", _note_lines)


def _hook_kernels() -> None:
    symbols.wrap_symbol("torch._inductor.codegen.cpp:CppScheduling.define_kernel", _note_kernel)


def _note_lines(real: Callable[..., Any]) -> Callable[..., Any]:
    def _call_user_compiler(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        for node in gm.graph.nodes:
            if line := user_line(str(node.meta.get("stack_trace") or "")):
                _traced_lines[node.name] = line
        return real(self, gm, *args, **kwargs)

    return _call_user_compiler


def _note_kernel(real: Callable[..., Any]) -> Callable[..., Any]:
    def define_kernel(self: Any, src_code: Any, nodes: Any, *args: Any, **kwargs: Any) -> Any:
        name = real(self, src_code, nodes, *args, **kwargs)
        origins = [
            origin
            for node in nodes
            for origin in getattr(getattr(node, "node", None), "origins", ())
        ]
        packets = (getattr(o.meta.get("original_aten"), "overloadpacket", None) for o in origins)
        ops = sorted({packet.__name__ for packet in packets if packet is not None})
        lines = [line for o in origins if (line := user_line(str(o.meta.get("stack_trace") or "")))]
        before, place = _sources.get(str(name), ([], ""))
        _sources[str(name)] = (list(dict.fromkeys([*before, *ops])), place or "".join(lines[-1:]))
        return name

    return define_kernel


def measure_parts(eager: Side, compiled: Side) -> None:
    """Journal the parts of a warm compiled call, and the operators of an eager one."""
    import torch

    if torch.cuda.is_initialized():
        journal.write_event(
            events.CallParts(not_measured="the parts of a call are measured on a CPU only")
        )
        return
    with _marked_kernels():
        parts, regions, pass_s = _profile(compiled, _part_of)
    _read_modules()
    operators, _, _ = _profile(eager, _operator_of)
    with compiled.surrounding():
        guards = guard_costs.slowest_guards()
    rest_s = max(pass_s - sum(seconds for seconds, _ in parts.values()), 0.0)
    looked_up = ("guards", "", True)
    if looked_up in parts and (guards_s := _guards_s(compiled)) is not None:
        # the profiler makes short look-ups longer, and the difference of long calls is noise
        seconds, count = parts[looked_up]
        parts[looked_up] = (min(guards_s, seconds), count)
    ordered = sorted(parts.items(), key=lambda item: item[1][0], reverse=True)
    journal.write_event(
        events.CallParts(
            parts=[
                events.CallPart(
                    kind=kind,
                    name=name,
                    is_compiled=is_compiled,
                    seconds=seconds,
                    count=count,
                    ops=_sources.get(name, ([], ""))[0] or [name],
                    where=_sources.get(name, ([], ""))[1],
                )
                for (kind, name, is_compiled), (seconds, count) in ordered[:MAX_PARTS]
            ],
            eager_operators={name: seconds for (name,), (seconds, _) in operators.items()},
            regions=regions,
            rest_s=rest_s,
            guards=guards,
        )
    )


def _guards_s(compiled: Side) -> float | None:
    """Return the seconds of the guards in a pass: how much longer it takes than one in which Dynamo
    checks only the guards that decide between several compiled graphs. None if this torch cannot
    leave them out.
    """
    import torch

    @contextlib.contextmanager
    def without_guards() -> Iterator[None]:
        with (
            compiled.surrounding(),
            torch.compiler.set_stance("default", skip_guard_eval_unsafe=True),
        ):
            yield

    checking, skipping = (
        Side(compiled.call, compiled.surrounding),
        Side(compiled.call, without_guards),
    )
    try:
        call_times.take_turns(skipping, checking, GUARD_BLOCKS, GUARD_S)
    except Exception:  # the guards that are left do not decide
        return None
    typical = call_times.typical
    return max(typical(checking.seconds) - typical(skipping.seconds), 0.0)


def _profile(
    side: Side, key_of: Callable[[Any], tuple[Any, ...]]
) -> tuple[dict[tuple[Any, ...], tuple[float, float]], float, float]:
    """Return the seconds and the count of each key in a pass, the number of compiled regions, and
    the seconds of the pass.

    The seconds are the lower quartile of the passes, because other programs only ever add to them.
    ``key_of`` returns the key of an event, which is empty for one that does not count.
    """
    from torch import profiler

    passes = 1
    for _ in range(2):  # the first pass tells how many events there are
        with (
            side.surrounding(),
            profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as profile,
        ):
            for _ in range(passes):
                with profiler.record_function(_PASS):
                    side.call()
        events = list(profile.events())
        measured, passes = passes, max(MIN_PASSES, min(MAX_PASSES, MAX_EVENTS // len(events)))
    starts = sorted(row.time_range.start for row in events if row.name == _PASS)
    pass_s = call_times.typical([row.cpu_time_total * 1e-6 for row in events if row.name == _PASS])
    sums: dict[tuple[Any, ...], list[list[float]]] = {}
    regions = 0
    for row in events:
        regions += row.name.startswith(_REGION)
        if key := key_of(row):
            one = sums.setdefault(key, [[0.0, 0.0] for _ in range(measured)])
            number = max(bisect.bisect_right(starts, row.time_range.start) - 1, 0)
            one[number][0] += row.cpu_time_total * 1e-6
            one[number][1] += 1
    rows: dict[tuple[Any, ...], tuple[float, float]] = {}
    for key, ones in sums.items():
        seconds = call_times.typical([second for second, _ in ones])
        rows[key] = (seconds, sum(count for _, count in ones) / measured)
    return rows, regions / measured, pass_s


def _part_of(row: Any) -> tuple[Any, ...]:
    kind = _kind_of(row.name)
    if not kind or _is_inside(row, lambda name: bool(_kind_of(name))):
        return ()
    if kind == "guards":
        return kind, "", True
    name = row.name.removeprefix(_MARK).removeprefix("aten::")
    return kind, name, _is_inside(row, lambda name: name.startswith(_COMPILED))


def _operator_of(row: Any) -> tuple[Any, ...]:
    if not _OPERATOR.match(row.name) or _is_inside(row, row.name.__eq__):
        return ()
    return (row.name.removeprefix("aten::"),)


def _kind_of(name: str) -> str:
    if name == _LOOK_UP:
        return "guards"
    if name.startswith(_MARK):
        return "kernel"
    return "operator" if _OPERATOR.match(name) else ""


def _is_inside(row: Any, is_wanted: Callable[[str], bool]) -> bool:
    parent = row.cpu_parent
    while parent is not None:
        if is_wanted(parent.name):
            return True
        parent = parent.cpu_parent
    return False


def _generated_modules() -> Iterator[Any]:
    codecache = sys.modules.get("torch._inductor.codecache")
    cache = getattr(codecache, "PyCodeCache", None)
    yield from getattr(cache, "modules", ())


@contextlib.contextmanager
def _marked_kernels() -> Iterator[None]:
    """Mark each call of a generated kernel for the profiler."""
    import torch

    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    record = fast or torch.autograd.profiler.record_function
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for module in _generated_modules():
        for name, kernel in list(vars(module).items()):
            if _GENERATED.fullmatch(name) and callable(kernel):
                replaced.append((vars(module), name, kernel))
                vars(module)[name] = _marked(kernel, record(_MARK + name) if fast else None, name)
    try:
        yield
    finally:
        for owner, name, kernel in replaced:
            owner[name] = kernel


def _marked(kernel: Callable[..., Any], mark: Any, name: str) -> Callable[..., Any]:
    import torch

    def run_kernel(*args: Any, **kwargs: Any) -> Any:
        with mark or torch.autograd.profiler.record_function(_MARK + name):
            return kernel(*args, **kwargs)

    return run_kernel


def _read_modules() -> None:
    """Find the source of each operator and of each Triton kernel that generated code calls.

    Inductor writes it before the call.
    """
    for module in _generated_modules():
        with (
            contextlib.suppress(OSError, UnicodeDecodeError),
            open(str(module.__file__), encoding="utf-8") as file,
        ):
            _read_sources(file.read())


def _read_sources(text: str) -> None:
    ops: list[str] = []
    line = ""
    for row in text.splitlines():
        if said := _SOURCES.search(row):
            ops = [op.strip().removeprefix("aten.") for op in said["ops"].split(",") if op.strip()]
            nodes = [node.strip() for node in said["nodes"].split(",")]
            line = next((_traced_lines[n] for n in reversed(nodes) if n in _traced_lines), "")
        elif ops and not row.lstrip().startswith("#") and (called := _CALLED.search(row)):
            name = called["kernel"] or called["extern"] or called["op"]
            before, place = _sources.get(name, ([], ""))
            _sources[name] = (list(dict.fromkeys([*before, *ops])), place or line)
            ops, line = [], ""
