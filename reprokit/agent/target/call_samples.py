"""Call a model again and again, and count what the process holds after some of the calls.

The counts are written into arrays that exist before the first sample, so that they do not grow
themselves. No sample keeps an object of the program.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import os
import re
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.shared.contract import growth_events as names
from ..record import journal
from . import call_holders

MAX_SAMPLES, MIN_SAMPLES = 32, 12
MAX_SAMPLING_CPU_S = 60.0
"""With a large program, fewer samples are taken, so that they do not take more CPU seconds."""
WARM_UP_SHARE = 0.2
"""The share of the calls before the first sample. They compile, and fill caches."""
MAX_TYPES, MAX_SENT_TYPES = 5000, 16
"""Limits of the types that are counted, and of those in the journal."""
MAX_NODES = 20_000
"""Limit of the nodes of autograd graphs that one sample visits."""
_CONSTANTS = (True, False, *range(-5, 257))
"""Objects that CPython makes once. Source: ``_PY_NSMALLPOSINTS`` of CPython."""
_NODE = re.compile(r"builtins\.(\w+Backward\d*|AccumulateGrad)")
"""Objects for nodes of autograd graphs, which exist only because a sample has visited the nodes."""
_mro_of = type.__dict__["__mro__"].__get__
_module_of = type.__dict__["__module__"].__get__
_name_of = type.__dict__["__qualname__"].__get__


def sample_calls(call: Callable[[int], None], calls: int, period: int, finds_holders: bool) -> None:
    """Call ``call`` with the numbers from 0 to ``calls``, and journal the samples.

    ``period`` is the number of calls after which the arguments repeat: a step from one sample to
    the next is a multiple of it, where the calls suffice. ``finds_holders`` also finds what holds
    what grows.
    """
    number = 0

    def advance(by: int) -> None:
        nonlocal number
        for _ in range(by):
            call(number)
            number += 1

    sampler = _Sampler()
    advance(_calls_before(calls, period))
    began = time.process_time()
    sampler.make_arrays()
    cost_s = max(time.process_time() - began, 1e-3)
    most = min(MAX_SAMPLES, max(MIN_SAMPLES, int(MAX_SAMPLING_CPU_S / cost_s)))
    step, count = _plan_steps(calls - number, period, most)
    sampler.take_sample(number)
    for _ in range(count):
        advance(step)
        sampler.take_sample(number)
    holders: list[names.GrowingHolder] = []
    lines: list[names.AllocatingLine] = []
    if finds_holders and sampler.has_growth:
        holders, lines = call_holders.find_holders(
            lambda: advance(step), step, sampler.growing_types()
        )
    journal.write_event(
        names.CallsSampled(
            calls=number,
            at=sampler.taken(sampler.at),
            series={name: sampler.taken(values) for name, values in sampler.series.items()},
            types=sampler.growing_types(),
            holders=holders,
            lines=lines,
            not_measured=sampler.not_measured,
        )
    )


def _calls_before(calls: int, period: int) -> int:
    """Return the number of calls before the first sample."""
    few = max(1, round(calls * WARM_UP_SHARE))
    whole = _whole_periods(few, period)
    return whole if whole <= 2 * few else few


def _plan_steps(left: int, period: int, most: int) -> tuple[int, int]:
    """Return the number of calls between two samples, and how many such steps are sampled. One more
    step is for the holders.
    """
    few = -(-left // most)
    step = _whole_periods(few, period)
    if step * MIN_SAMPLES > left:
        step = few
    return step, max(left // step - 1, 1)


def _whole_periods(calls: int, period: int) -> int:
    return -(-calls // period) * period


class _Sampler:
    """Samples of this process, in arrays of a fixed size."""

    def __init__(self) -> None:
        self._next = 0
        self.at = array("q", bytes(8 * MAX_SAMPLES))
        self.series: dict[str, array[int]] = {}
        self.types: dict[str, array[int]] = {}
        self.not_measured: dict[str, str] = {}
        self._heap = _heap_reader()
        if self._heap is None:
            self.not_measured[names.HEAP] = "the C library has no mallinfo2"
        if sys.version_info >= (3, 12):
            for name in (names.NONE, names.CONSTANTS):
                self.not_measured[name] = "this Python does not count them"

    @property
    def has_growth(self) -> bool:
        """Whether a series may grow; whether it does is decided later."""
        rows = [values for name, values in self.series.items() if name != names.RESIDENT]
        return any(self._may_grow(values) for values in (*rows, *self.types.values()))

    def taken(self, values: Sequence[int]) -> list[int]:
        """Return the values of the samples that were taken."""
        return list(values[: self._next])

    def _may_grow(self, values: Sequence[int]) -> bool:
        first, middle, last = values[0], values[self._next // 2], values[self._next - 1]
        return first < middle < last or first > middle > last

    def growing_types(self) -> dict[str, list[int]]:
        """Return the counts of the types that may grow, those that grow most first."""
        rows = [
            (name, self.taken(values))
            for name, values in self.types.items()
            if self._may_grow(values)
        ]
        rows.sort(key=lambda row: row[1][0] - row[1][-1])
        return dict(rows[:MAX_SENT_TYPES])

    def make_arrays(self) -> None:
        """Make the arrays, which the first sample would else count as new objects."""
        self.take_sample(0)
        self._next = 0
        for values in (*self.series.values(), *self.types.values()):
            values[0] = 0

    def take_sample(self, number: int) -> None:
        """Count everything, after ``number`` calls."""
        gc.collect()
        self.at[self._next] = number
        objects = gc.get_objects()
        by_type = collections.Counter(map(type, objects))
        total = 0
        for kind, count in by_type.items():
            name = f"{_module_of(kind)}.{_name_of(kind)}"
            if not _NODE.fullmatch(name):
                total += count
                self._put(self.types, name, count, MAX_TYPES)
        tensors = _tensors(objects, by_type)
        del objects, by_type
        self._put_all(tensors, total)
        del tensors
        self._next += 1

    def _put_all(self, tensors: list[Any], total: int) -> None:
        put = self._put
        put(self.series, names.OBJECTS, total)
        put(self.series, names.TENSORS, _bytes_of(tensors))
        put(self.series, names.NODES, _count_nodes(tensors))
        tensors.clear()
        for name, count in _count_cache().items():
            put(self.series, name, count)
        if (allocated := _gpu_bytes()) is not None:
            put(self.series, names.GPU, allocated)
        with contextlib.suppress(OSError):
            put(self.series, names.DESCRIPTORS, len(os.listdir("/proc/self/fd")))
            put(self.series, names.RESIDENT, _resident_bytes())
        put(self.series, names.BLOCKS, sys.getallocatedblocks())
        if self._heap is not None:
            put(self.series, names.HEAP, self._heap())
        if names.NONE not in self.not_measured:
            put(self.series, names.NONE, sys.getrefcount(None))
            put(self.series, names.CONSTANTS, sum(map(sys.getrefcount, _CONSTANTS)))

    def _put(
        self, rows: dict[str, array[int]], name: str, value: int, limit: int = MAX_TYPES
    ) -> None:
        if name not in rows:
            if len(rows) >= limit:
                return
            rows[name] = array("q", bytes(8 * MAX_SAMPLES))
        rows[name][self._next] += value  # two classes may have one name


def _tensors(objects: Iterable[object], by_type: Iterable[type]) -> list[Any]:
    """Return the tensors that have memory of their own."""
    import torch

    def is_plain(kind: type) -> bool:
        if torch.Tensor not in _mro_of(kind):
            return False
        # what has a dispatch of its own is fake, or wraps tensors that are counted themselves
        own: Any = getattr(kind, "__torch_dispatch__", None)
        return own is torch.Tensor.__torch_dispatch__

    plain = {kind for kind in by_type if is_plain(kind)}
    return [value for value in objects if type(value) in plain]


def _bytes_of(tensors: Iterable[Any]) -> int:
    """Return the bytes that tensors reach, those of each storage once.

    A storage is known by its address: to ask a tensor for it makes an object that stays.
    """
    import torch

    sizes: dict[int, int] = {}
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                if tensor.layout is torch.strided and tensor.device.type != "meta":
                    item, offset = tensor.element_size(), tensor.storage_offset()
                    spans = zip(tensor.shape, tensor.stride(), strict=True)
                    extent = sum((n - 1) * by for n, by in spans) + 1 if tensor.numel() else 0
                    start = tensor.data_ptr() - offset * item
                    sizes[start] = max(sizes.get(start, 0), (offset + extent) * item)
    return sum(sizes.values())


def _count_nodes(tensors: Iterable[Any]) -> int:
    """Return the number of autograd nodes that live tensors keep."""
    import torch

    seen: dict[int, Any] = {}
    with torch._C.DisableTorchFunctionSubclass():
        for tensor in tensors:
            with contextlib.suppress(RuntimeError):
                call_holders.reachable_nodes(tensor, seen, MAX_NODES)
    return len(seen)


def _count_cache() -> dict[str, int]:
    """Return the number of entries in Dynamo's cache, and of their guards."""
    entries = guards = 0
    for _, rows in call_holders.cache_entries():
        entries += len(rows)
        guards += sum(len(getattr(row.guard_manager, "code_parts", ())) for row in rows)
    return {names.ENTRIES: entries, names.GUARDS: guards}


def _gpu_bytes() -> int | None:
    """Return the memory that torch has allocated on GPUs; None without one."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    return sum(map(torch.cuda.memory_allocated, range(torch.cuda.device_count())))


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and newer; see mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
        )
    ]


def _heap_reader() -> Callable[[], int] | None:
    """Return a function that returns the bytes in use by ``malloc``, where tensors on a CPU are
    too; None if the C library cannot say it.
    """
    try:
        read = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    read.restype = _MallocInfo

    def bytes_in_use() -> int:
        info = read()
        return int(info.uordblks + info.hblkhd)

    return bytes_in_use
