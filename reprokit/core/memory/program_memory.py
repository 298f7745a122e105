"""The peak of a whole program, from its record and the texts of its generated modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprokit.core.memory.module_memory import LiveTensor, ModuleMemory, module_memory
from reprokit.core.records import memory_use
from reprokit.core.records.memory_use import MemoryUse, NeededTensor, PhaseUse
from reprokit.core.shared.contract.memory_record import (
    LIFETIMES,
    BufferFact,
    CompiledCall,
    MemoryRecord,
    PhasePeak,
)

FORWARD, BACKWARD = "forward", "backward"
MAX_TENSORS = 400
"""Limit of the tensors that are named; the others are added up."""
_COPIES = frozenset({"aten.clone", "aten.copy", "aten.contiguous", "prims.device_put"})
_CONCATENATIONS = frozenset({"aten.cat", "aten.stack"})


@dataclass(frozen=True)
class GeneratedModule:
    """A module that Inductor generated."""

    text: str
    buffers: Mapping[str, BufferFact]


def program_memory(record: MemoryRecord, modules: Mapping[int, GeneratedModule]) -> MemoryUse:
    """Return the peaks of a program, and which tensors exist there."""
    walked: list[ModuleMemory | None] = []
    problems = [record.problem] if record.problem else []
    for call in record.calls:
        try:
            module = modules[call.module]
            walk = module_memory(module.text, module.buffers, call.arguments)
            walked.append(walk)
            if walk.unknown:
                problems.append(
                    f"{len(walk.unknown)} results of operators in generated code are not counted,"
                    " because their sizes are not known; an empty TORCHINDUCTOR_CACHE_DIR helps"
                )
        except (KeyError, ValueError) as problem:
            walked.append(None)
            problems.append(f"a call of a compiled graph is not counted: {problem}")
    graphs = _Graphs(record.calls, walked, modules)
    phases = {}
    for name, peak in record.peaks.items():
        peak = _with_graphs(name, peak, record, walked)
        if peak.is_inside and peak.after_call:
            tensors, at = graphs.inside(peak.after_call - 1)
        else:
            tensors, at = graphs.between(peak.after_call), ""
        phases[name] = PhaseUse(
            peak_bytes=record.held_bytes + peak.peak_bytes,
            at=at,
            tensors=tuple(sorted(tensors, key=lambda t: -t.size_bytes)[:MAX_TENSORS]),
        )
    return MemoryUse(
        source=record.source,
        held_bytes=record.held_bytes,
        phases=phases,
        problem="; ".join(dict.fromkeys(problems)),
    )


def call_peaks(
    record: MemoryRecord, modules: Mapping[int, GeneratedModule]
) -> tuple[tuple[int, int], ...]:
    """Return the simulated and the measured peak of each call of a graph, above its start."""
    rows = []
    for call in record.calls:
        module = modules[call.module]
        walked = module_memory(module.text, module.buffers, call.arguments)
        rows.append((walked.peak_bytes, call.peak_bytes - call.live_bytes))
    return tuple(rows)


def _with_graphs(
    name: str, peak: PhasePeak, record: MemoryRecord, walked: Sequence[ModuleMemory | None]
) -> PhasePeak:
    """Return the peak of a phase with what its compiled graphs allocate inside."""
    if record.source != LIFETIMES:
        return peak
    for number, (call, memory) in enumerate(zip(record.calls, walked, strict=True)):
        if memory is None or call.is_backward != (name == BACKWARD):
            continue
        inside = call.live_bytes + memory.peak_bytes
        if inside > peak.peak_bytes:
            peak = PhasePeak(peak_bytes=inside, after_call=number + 1, is_inside=True)
    return peak


class _Graphs:
    """The calls of compiled graphs, and the tensors that go from one to another."""

    def __init__(
        self,
        calls: Sequence[CompiledCall],
        walked: Sequence[ModuleMemory | None],
        modules: Mapping[int, GeneratedModule],
    ) -> None:
        self._calls, self._walked, self._modules = calls, walked, modules
        self._last_use: dict[int, int] = {}
        """The last call that has a storage as an argument."""
        self._made: dict[int, tuple[int, str]] = {}
        """The call that makes a storage, and the name of its buffer."""
        inputs: set[int] = set()
        for number, (call, memory) in enumerate(zip(calls, walked, strict=True)):
            for argument in call.arguments:
                if argument.storage and argument.is_freed:
                    self._last_use[argument.storage] = number
                if argument.storage not in self._made:
                    inputs.add(argument.storage)
            for place, storage in enumerate(call.outputs):
                names = memory.outputs if memory is not None else ()
                if storage and storage not in inputs and storage not in self._made:
                    name = names[place] if place < len(names) else ""
                    self._made[storage] = number, name

    def inside(self, number: int) -> tuple[list[NeededTensor], str]:
        """Return the tensors at the peak of a call, and the step that runs there."""
        call, memory = self._calls[number], self._walked[number]
        if memory is None:
            return self.between(number), ""
        rows = []
        passed = set()
        for tensor in memory.tensors:
            if tensor.argument >= 0:
                argument = call.arguments[tensor.argument]
                if argument.storage in self._made:
                    passed.add(argument.storage)
                    rows.append(self._passed(argument.storage, tensor.size_bytes))
                continue
            rows.append(self._buffer(call, number, tensor, memory.at))
        released = {a.storage for a in call.arguments}
        rows += [row for s, row in self._waiting(number) if s not in released]
        return rows, memory.at

    def between(self, begun: int) -> list[NeededTensor]:
        """Return the tensors of graphs that exist after this many calls."""
        return [row for _, row in self._waiting(begun)]

    def _waiting(self, begun: int) -> list[tuple[int, NeededTensor]]:
        """Return what earlier graphs made, and a later one reads for the last time."""
        rows = []
        for storage, (made, name) in self._made.items():
            last = self._last_use.get(storage, -1)
            memory = self._walked[made]
            if made >= begun or last < begun or memory is None:
                continue
            rows.append((storage, self._passed(storage, memory.allocated.get(name, 0))))
        return rows

    def _passed(self, storage: int, size_bytes: int) -> NeededTensor:
        made, name = self._made[storage]
        fact = self._fact(made, name)
        later = self._last_use.get(storage)
        is_saved = later is not None and self._calls[later].is_backward
        is_saved &= not self._calls[made].is_backward
        if is_saved:  # each graph numbers its buffers from 0
            return _tensor(f"forward {name}", size_bytes, fact, memory_use.SAVED)
        return _tensor(name, size_bytes, fact, memory_use.OUTPUT)

    def _buffer(self, call: CompiledCall, number: int, tensor: LiveTensor, at: str) -> NeededTensor:
        fact = self._fact(number, tensor.name)
        storages = {call.outputs[n] for n in tensor.outputs if n < len(call.outputs)}
        later = [self._last_use[s] for s in storages if s in self._last_use]
        if any(self._calls[n].is_backward for n in later) and not call.is_backward:
            reason, until = memory_use.SAVED, ""
        elif tensor.outputs:
            reason, until = memory_use.GRADIENT if call.is_backward else memory_use.OUTPUT, ""
        else:
            reason, until = _reason(fact, tensor.last_use == at), tensor.last_use
        return _tensor(tensor.name, tensor.size_bytes, fact, reason, until)

    def _fact(self, number: int, name: str) -> BufferFact:
        module = self._modules.get(self._calls[number].module)
        return (module.buffers.get(name) if module else None) or BufferFact()


def _reason(fact: BufferFact, is_at_peak: bool) -> str:
    if fact.is_recomputed:
        return memory_use.RECOMPUTED
    bases = {_base(operator) for operator in fact.operators}
    if bases and bases <= _COPIES:
        return memory_use.COPY
    if bases & _CONCATENATIONS:
        return memory_use.CONCATENATION
    return memory_use.AT_PEAK if is_at_peak else memory_use.NEEDED


def _base(operator: str) -> str:
    return ".".join(operator.split(".")[:2])


def _tensor(
    name: str, size_bytes: int, fact: BufferFact, reason: str, until: str = ""
) -> NeededTensor:
    names = dict.fromkeys(map(_base, fact.operators))
    operators = ", ".join(o for o in names if o.startswith(("aten.", "prims.")))
    return NeededTensor(
        name=name,
        size_bytes=size_bytes,
        shape=fact.shape,
        dtype=fact.dtype.removeprefix("torch."),
        operator=operators,
        line=fact.line,
        reason=reason,
        until=until,
    )
