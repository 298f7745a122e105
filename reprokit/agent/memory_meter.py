"""Measure the memory of one pass over the calls of a target: its peak in the forward and in the
backward passes, and the calls of compiled graphs in it.

Real tensors are measured by what torch reports, fake ones by the lifetimes of their storages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..core.shared.contract import memory_record
from ..core.shared.contract.memory_record import (
    BufferFact,
    CompiledCall,
    GraphArgument,
    MemoryRecord,
    PhasePeak,
)
from ..core.shared.contract.serialize import to_json
from ..core.shared.tracebacks import user_line
from .record import graph_recorder, journal
from .torch_hooks import symbols

FORWARD, BACKWARD = "forward", "backward"
_MARK = "reprokit memory: "
_COMPILED = "torch._inductor.output_code:CompiledFxGraph"
_PASS, _GRAPH = f"{_MARK}{BACKWARD}", f"{_MARK}graph "
MAX_CALLS = 10_000
"""Limit of the calls of compiled graphs that are recorded."""

MakeCalls = Callable[[Callable[[Callable[[], object]], None]], None]
"""Makes all calls of a target. Its argument runs a backward pass."""


class MemoryMeter:
    """Measures passes over the calls of a target. Create it before the first compile."""

    def __init__(self) -> None:
        self._is_fake = False
        self._calls: list[CompiledCall] = []
        self._modules: dict[str, int] = {}
        self._buffers: dict[str, dict[str, BufferFact]] = {}
        """By the text of a module."""
        self._lifetimes: _Lifetimes | None = None
        self._storages: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        symbols.INDUCTOR_HOOKS.append(self._hook_graphs)
        if "torch._inductor.compile_fx" in sys.modules:
            symbols.attempt_hook(self._hook_graphs)

    def measure(self, make_calls: MakeCalls, held: Any, is_fake: bool, folder: str = "") -> None:
        """Make the calls, and write the record of their memory below ``folder`` in the run
        directory.

        ``held`` are the tensors that exist before. The calls are made again if something was
        compiled meanwhile, because the compiler allocates memory too.
        """
        self._is_fake = is_fake
        for _ in range(2):
            before = graph_recorder.entered
            self._calls.clear()
            record = self._measure(make_calls, held)
            if graph_recorder.entered == before:
                break
        self._write(record, folder)

    def _hook_graphs(self) -> None:
        """Record the buffers of each graph that Inductor compiles."""
        symbols.wrap_symbol(f"{_COMPILED}.__init__", self._hook_new)

    def _measure(self, make_calls: MakeCalls, held: Any) -> MemoryRecord:
        with self._followed_calls():
            if self._is_fake:
                peaks = self._by_lifetimes(make_calls, held)
            elif torch.cuda.is_initialized():
                peaks = self._by_cuda(make_calls)
            else:
                peaks = self._by_profiler(make_calls)
        source = memory_record.LIFETIMES if self._is_fake else memory_record.ALLOCATOR
        return MemoryRecord(
            source=source, held_bytes=_bytes_of(held), peaks=peaks, calls=tuple(self._calls)
        )

    def _by_profiler(self, make_calls: MakeCalls) -> dict[str, PhasePeak]:
        def run_backward(run: Callable[[], object]) -> None:
            with torch.profiler.record_function(_PASS):
                run()

        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            make_calls(run_backward)
        events: Any = profile.profiler.kineto_results.events()
        return self._read_events(events)

    def _read_events(self, events: Any) -> dict[str, PhasePeak]:
        """Return the peaks, and note those within calls of graphs."""
        rows: list[tuple[int, int, str, int]] = []
        for number, event in enumerate(events):
            name = event.name()
            if name == "[memory]":
                rows.append((event.start_ns(), number, name, event.nbytes()))
            elif name == _PASS or name.startswith(_GRAPH):
                rows.append((event.start_ns(), number, name, 1))
                rows.append((event.end_ns(), number, name, -1))
        live, inside, begun, phase = 0, 0, 0, FORWARD
        peaks: dict[str, PhasePeak] = {}
        in_calls: dict[int, tuple[int, int]] = {}
        for _, _, name, value in sorted(rows):
            if name == _PASS:
                phase = BACKWARD if value > 0 else FORWARD
            elif name != "[memory]":
                inside, number = inside + value, int(name.removeprefix(_GRAPH))
                begun = max(begun, number + 1)
                in_calls.setdefault(number, (live, live))
            else:
                live += value
                if inside and begun - 1 in in_calls:
                    entry, most = in_calls[begun - 1]
                    in_calls[begun - 1] = entry, max(most, live)
            if phase not in peaks or live > peaks[phase].peak_bytes:
                peaks[phase] = PhasePeak(peak_bytes=live, after_call=begun, is_inside=bool(inside))
        for number, (entry, most) in in_calls.items():
            if number < len(self._calls):
                self._calls[number] = dataclasses.replace(
                    self._calls[number], live_bytes=entry, peak_bytes=most
                )
        return peaks

    def _by_cuda(self, make_calls: MakeCalls) -> dict[str, PhasePeak]:
        peaks: dict[str, PhasePeak] = {}
        before = torch.cuda.memory_allocated()

        def note(phase: str) -> None:
            torch.cuda.synchronize()
            peak = PhasePeak(
                peak_bytes=torch.cuda.max_memory_allocated() - before, after_call=len(self._calls)
            )
            if phase not in peaks or peak.peak_bytes > peaks[phase].peak_bytes:
                peaks[phase] = peak
            torch.cuda.reset_peak_memory_stats()

        def run_backward(run: Callable[[], object]) -> None:
            note(FORWARD)
            run()
            note(BACKWARD)

        torch.cuda.reset_peak_memory_stats()
        make_calls(run_backward)
        note(FORWARD)
        return peaks

    def _by_lifetimes(self, make_calls: MakeCalls, held: Any) -> dict[str, PhasePeak]:
        lifetimes = self._lifetimes = _Lifetimes()

        def run_backward(run: Callable[[], object]) -> None:
            lifetimes.phase = BACKWARD
            run()
            lifetimes.phase = FORWARD

        try:
            with _without_cache(held), lifetimes:
                make_calls(run_backward)
        finally:
            self._lifetimes = None
        return {
            phase: PhasePeak(peak_bytes=size, after_call=call)
            for phase, (size, call) in lifetimes.peaks.items()
        }

    def _hook_new(self, real: Callable[..., Any]) -> Callable[..., Any]:
        meter = self

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            lowered = [a for a in (*args, *kwargs.values()) if hasattr(a, "name_to_buffer")]
            if lowered:
                with contextlib.suppress(Exception):  # the program must be compiled without it too
                    meter._buffers[self.source_code] = dict(_buffer_facts(lowered[0]))

        return __init__

    @contextlib.contextmanager
    def _followed_calls(self) -> Iterator[None]:
        """Record each call of a compiled graph meanwhile."""
        module, _, name = _COMPILED.partition(":")
        if module not in sys.modules:
            yield
            return
        owner = getattr(sys.modules[module], name)
        kept = owner.__dict__["__call__"]
        symbols.wrap_symbol(f"{_COMPILED}.__call__", self._hook_call)
        try:
            yield
        finally:
            owner.__call__ = kept

    def _hook_call(self, real: Callable[..., Any]) -> Callable[..., Any]:
        meter = self

        def __call__(self: Any, inputs: Any) -> Any:
            if len(meter._calls) >= MAX_CALLS:
                return real(self, inputs)
            return meter._call_graph(self, inputs, lambda: real(self, inputs))

        return __call__

    def _call_graph(self, graph: Any, inputs: Any, call: Callable[[], Any]) -> Any:
        number, text = len(self._calls), graph.source_code
        started = CompiledCall(
            module=self._modules.setdefault(text, len(self._modules)),
            is_backward=bool((getattr(graph, "fx_kwargs", None) or {}).get("is_backward")),
            live_bytes=self._lifetimes.live if self._lifetimes else 0,
        )
        self._calls.append(started)
        storages = [
            weakref.ref(a.untyped_storage()) if isinstance(a, torch.Tensor) else None
            for a in inputs
        ]
        arguments = [self._argument(a) for a in inputs]
        if self._lifetimes:
            self._lifetimes.calls, self._lifetimes.is_in_graph = number + 1, True
        with torch.profiler.record_function(f"{_GRAPH}{number}"):
            outputs = call()
        if self._is_fake and isinstance(inputs, list):
            inputs.clear()  # as a generated module does
        for place, storage in enumerate(storages):
            if storage is not None and storage() is None:
                arguments[place] = dataclasses.replace(arguments[place], is_freed=True)
        if self._lifetimes:
            self._lifetimes.is_in_graph = False
            self._lifetimes.note_peak()
        self._calls[number] = dataclasses.replace(
            started,
            arguments=tuple(arguments),
            outputs=tuple(self._argument(o).storage for o in outputs),
        )
        return outputs

    def _argument(self, value: Any) -> GraphArgument:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            if storage not in self._storages:
                self._count += 1
                self._storages[storage] = self._count
            return GraphArgument(storage=self._storages[storage], size_bytes=storage.nbytes())
        return GraphArgument(value=int(value) if isinstance(value, (int, torch.SymInt)) else None)

    def _write(self, record: MemoryRecord, folder: str) -> None:
        folder = os.path.join(journal.RUN_DIR, folder, memory_record.FOLDER)
        os.makedirs(folder, exist_ok=True)
        for text, number in self._modules.items():
            _write_file(folder, memory_record.module_file(number), text)
            rows = {name: to_json(fact) for name, fact in self._buffers.get(text, {}).items()}
            _write_file(folder, memory_record.buffers_file(number), json.dumps(rows))
        _write_file(folder, memory_record.RECORD_FILE, json.dumps(to_json(record)))


class _Lifetimes(TorchDispatchMode):
    """Adds up the storages that exist, from the operation that makes each to its end."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that Dynamo compiles and runs what it does without this mode."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.phase = FORWARD
        self.calls = 0
        """How many calls of compiled graphs have begun."""
        self.is_in_graph = False
        """What such a call makes is known before its arguments end, which it frees first."""
        self.peaks: dict[str, tuple[int, int]] = {}
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {id(s) for s in _storages_of((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages_of(result):
            if id(storage) not in before:
                self._note(storage)
        if not self.is_in_graph:
            self.note_peak()
        return result

    def note_peak(self) -> None:
        """Note what exists now, if nothing larger is noted for this phase."""
        if self.phase not in self.peaks or self.live > self.peaks[self.phase][0]:
            self.peaks[self.phase] = self.live, self.calls

    def _note(self, storage: Any) -> None:
        key, size = id(storage), storage.nbytes()
        known = self._known.get(key)
        if known is not None and known() is storage:
            return

        def end(_: Any) -> None:
            self.live -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, end)
        self.live += size


@contextlib.contextmanager
def _without_cache(held: Any) -> Iterator[None]:
    """Switch the cache of fake tensors off: it forgets which outputs of a graph are its inputs."""
    modes = {mode for t in tree_leaves(held) if (mode := getattr(t, "fake_mode", None))}
    kept = [(mode, mode.cache_enabled) for mode in modes]
    for mode in modes:
        mode.cache_enabled = False
    try:
        yield
    finally:
        for mode, value in kept:
            mode.cache_enabled = value


def _storages_of(values: Any) -> Iterator[Any]:
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor):
            yield value.untyped_storage()


def _bytes_of(values: Any) -> int:
    """Return the bytes of all storages in a tree, each of them once."""
    storages = {id(s): s for s in _storages_of(values)}
    return sum(s.nbytes() for s in storages.values())


def _buffer_facts(graph: Any) -> Iterator[tuple[str, BufferFact]]:
    """Yield what a lowered graph knows of each of its buffers."""
    for name, buffer in graph.name_to_buffer.items():
        dtype = numel = shape = ""
        with contextlib.suppress(Exception):  # the result of an operator with several results
            layout = buffer.get_layout()
            dtype, numel = str(layout.dtype), str(layout.storage_size())
            shape = "x".join(map(str, layout.size))
        nodes = [n for n in getattr(buffer, "origins", ()) or () if n.op == "call_function"]
        stacks = [str(n.meta.get("stack_trace") or n.stack_trace or "") for n in nodes]
        yield (
            name,
            BufferFact(
                dtype=dtype,
                numel=numel,
                shape=shape,
                operators=tuple(
                    dict.fromkeys(str(n.target).removesuffix(".default") for n in nodes)
                ),
                line=next((line for s in reversed(stacks) if (line := user_line(s))), ""),
                is_recomputed=bool(nodes)
                and graph.is_backward
                and not any(map(_is_backward, nodes)),
            ),
        )


def _is_backward(node: Any) -> bool:
    return bool(node.meta.get("partitioner_tag") == "is_backward")


def _write_file(folder: str, name: str, text: str) -> None:
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
