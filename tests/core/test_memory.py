"""Tests of the peak of the memory: from the text of generated modules, and beside eager."""

from __future__ import annotations

import dataclasses

import pytest

from reprokit.core.judge.signature import sign_verdict
from reprokit.core.judge.silent_failures import is_tolerated
from reprokit.core.judge.verdict import judge_run
from reprokit.core.memory.module_memory import module_memory
from reprokit.core.memory.program_memory import GeneratedModule, program_memory
from reprokit.core.records import memory_use
from reprokit.core.records.memory_use import MemoryComparison, MemoryUse, PhaseUse
from reprokit.core.records.observation import Observation
from reprokit.core.records.rank_graphs import GraphRecord
from reprokit.core.shared.contract.memory_record import (
    ALLOCATOR,
    LIFETIMES,
    BufferFact,
    CompiledCall,
    GraphArgument,
    MemoryRecord,
    PhasePeak,
)

FORWARD = """
class Runner:
    def call(self, args):
        primals_1, primals_2, primals_3, primals_4, primals_5, primals_6, primals_7 = args
        args.clear()
        buf0 = empty_strided_cpu((4096, 2048), (2048, 1), torch.float32)
        extern_kernels.addmm(primals_2, primals_3, reinterpret_tensor(primals_1, (512, 2048), (1, 512), 0), alpha=1, beta=1, out=buf0)
        del primals_1
        del primals_2
        buf1 = empty_strided_cpu((4096, 2048), (2048, 1), torch.float32)
        cpp_fused_gelu_0(buf0, buf1)
        buf2 = empty_strided_cpu((4096, 512), (512, 1), torch.float32)
        extern_kernels.addmm(primals_5, buf1, reinterpret_tensor(primals_4, (2048, 512), (1, 2048), 0), alpha=1, beta=1, out=buf2)
        del primals_5
        buf3 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf4 = buf3; del buf3  # reuse
        buf5 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf6 = reinterpret_tensor(buf5, (4096, 1), (1, 1), 0); del buf5  # reuse
        buf7 = empty_strided_cpu((4096, 512), (512, 1), torch.float32)
        buf8 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf9 = buf7; del buf7  # reuse
        buf10 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf11 = buf9; del buf9  # reuse
        cpp_fused__softmax_native_layer_norm_1(buf4, buf6, buf11, buf2, primals_6, primals_7, buf8, buf10)
        del buf10
        del buf8
        del primals_7
        return (buf11, primals_3, primals_4, primals_6, buf0, buf1, buf2, reinterpret_tensor(buf4, (4096, 1), (1, 1), 0), buf6, buf11, )
"""
BACKWARD = """
class Runner:
    def call(self, args):
        primals_3, primals_4, primals_6, addmm, mul_2, addmm_1, getitem_1, rsqrt, div, tangents_1 = args
        args.clear()
        buf0 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf1 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf2 = empty_strided_cpu((4096, 1), (1, 4096), torch.float32)
        buf3 = empty_strided_cpu((4096, 512), (512, 1), torch.float32)
        buf4 = empty_strided_cpu((512, ), (1, ), torch.float32)
        buf5 = empty_strided_cpu((512, ), (1, ), torch.float32)
        cpp_fused__softmax_backward_data_native_layer_norm_native_layer_norm_backward_0(tangents_1, div, primals_6, addmm_1, getitem_1, rsqrt, buf0, buf1, buf2, buf3, buf4, buf5)
        del addmm_1
        del buf0
        del buf1
        del buf2
        del div
        del getitem_1
        del primals_6
        del rsqrt
        del tangents_1
        buf7 = empty_strided_cpu((512, 2048), (2048, 1), torch.float32)
        extern_kernels.mm(reinterpret_tensor(buf3, (512, 4096), (1, 512), 0), mul_2, out=buf7)
        del mul_2
        buf8 = empty_strided_cpu((1, 512), (512, 1), torch.float32)
        cpp_fused_sum_1(buf3, buf8)
        buf6 = empty_strided_cpu((4096, 2048), (2048, 1), torch.float32)
        extern_kernels.mm(buf3, primals_4, out=buf6)
        del buf3
        del primals_4
        buf9 = buf6; del buf6  # reuse
        buf11 = empty_strided_cpu((1, 2048), (2048, 1), torch.float32)
        cpp_fused_gelu_gelu_backward_sum_2(buf9, addmm, buf11)
        del addmm
        buf10 = empty_strided_cpu((2048, 512), (512, 1), torch.float32)
        extern_kernels.mm(reinterpret_tensor(buf9, (2048, 4096), (1, 2048), 0), primals_3, out=buf10)
        del buf9
        del primals_3
        return (buf10, reinterpret_tensor(buf11, (2048, ), (1, ), 0), None, buf7, reinterpret_tensor(buf8, (512, ), (1, ), 0), buf4, buf5, )
"""
"""The modules of Linear(512, 2048), GELU, Linear, LayerNorm and Softmax with torch 2.13, without
their checks.
"""
FORWARD_CALL = (
    [
        (1, 4194304, False),
        (2, 8192, False),
        (3, 8388608, False),
        (4, 4194304, False),
        (5, 2048, False),
        (6, 2048, False),
        (7, 2048, False),
    ],
    [8, 3, 4, 6, 9, 10, 11, 12, 13, 8],
)
BACKWARD_CALL = (
    [
        (3, 8388608, False),
        (4, 4194304, False),
        (6, 2048, False),
        (9, 33554432, True),
        (10, 33554432, True),
        (11, 8388608, True),
        (12, 16384, True),
        (13, 16384, True),
        (8, 8388608, False),
        (14, 8388608, True),
    ],
    [15, 16, 0, 17, 18, 19, 20],
)
"""The storage, size and end of each argument, and the storages of the outputs, as recorded."""


def _call(rows: list[tuple[int, int, bool]], outputs: list[int], **more: int) -> CompiledCall:
    arguments = tuple(
        GraphArgument(storage=storage, size_bytes=size, is_freed=is_freed)
        for storage, size, is_freed in rows
    )
    call = CompiledCall(module=0, arguments=arguments, outputs=tuple(outputs))
    return dataclasses.replace(call, **more)


CALLS = (
    _call(*FORWARD_CALL, peak_bytes=83_951_616),
    _call(
        *BACKWARD_CALL, module=1, is_backward=True, live_bytes=92_307_464, peak_bytes=100_749_320
    ),
)
"""With the bytes that torch's allocator reported."""
GELU = BufferFact(
    dtype="torch.float32",
    numel="8388608",
    shape="4096x2048",
    operators=("aten.mul.Tensor", "aten.erf"),
    line="model.py:7 in forward",
)
MODULES = {0: GeneratedModule(FORWARD, {"buf1": GELU}), 1: GeneratedModule(BACKWARD, {})}


@pytest.mark.parametrize(("number", "text"), [(0, FORWARD), (1, BACKWARD)])
def test_the_peak_of_a_module_is_that_of_its_run(number: int, text: str) -> None:
    """The peak that is computed from the text is what torch's allocator reported."""
    call = CALLS[number]
    memory = module_memory(text, {}, call.arguments)
    assert memory.peak_bytes == call.peak_bytes - call.live_bytes
    assert not memory.unknown


def test_a_module_that_reuses_no_buffer_needs_more() -> None:
    """A line that reuses a buffer counts: without it, the peak is larger by that buffer."""
    new = "buf9 = empty_strided_cpu((4096, 512), (512, 1), torch.float32)"
    text = FORWARD.replace("buf9 = buf7; del buf7  # reuse", new)
    before = module_memory(FORWARD, {}, CALLS[0].arguments).peak_bytes
    assert module_memory(text, {}, CALLS[0].arguments).peak_bytes == before + 4 * 4096 * 512


def test_results_of_operators_have_the_sizes_that_inductor_knows() -> None:
    """What an operator allocates is counted from the facts of its buffers, each result by itself,
    also with a symbolic size; a result without a size is named.
    """
    text = """
def call(args):
    s0, x = args
    args.clear()
    buf0 = torch.ops.aten.sort.default(x)
    del x
    buf1 = buf0[0]
    buf2 = buf0[1]
    del buf0
    stream0 = get_raw_stream(0)
    buf3 = torch.ops.mylib.twice.default(buf1)
    del buf1
    return (buf2, buf3)
"""
    facts = {
        "buf0": BufferFact(),
        "buf1": BufferFact(dtype="torch.float32", numel="4*s0"),
        "buf2": BufferFact(dtype="torch.int64", numel="4*s0"),
        "buf3": BufferFact(),
    }
    arguments = (GraphArgument(value=100), GraphArgument(storage=1, size_bytes=1600))
    memory = module_memory(text, facts, arguments)
    assert (memory.peak_bytes, memory.at) == (1600 + 3200, "aten.sort")
    assert memory.unknown == ("buf3",)


def test_a_part_of_a_module_is_counted_where_it_is_called() -> None:
    """A partition of a module frees the list of its arguments, and its results are counted."""
    text = """
def partition_0(args):
    x, = args
    args.clear()
    buf0 = empty_strided_cpu((100, ), (1, ), torch.float32)
    cpp_fused_0(x, buf0)
    del x
    return (buf0, )
class Runner:
    def call(self, args):
        x, = args
        args.clear()
        partition0_args = [x]
        del x
        (buf0,) = self.partitions[0](partition0_args)
        del partition0_args
        buf1 = empty_strided_cpu((100, ), (1, ), torch.float32)
        cpp_fused_1(buf0, buf1)
        del buf0
        return (buf1, )
"""
    freed = GraphArgument(storage=1, size_bytes=400, is_freed=True)
    assert module_memory(text, {}, (freed,)).peak_bytes == 400
    held = dataclasses.replace(freed, is_freed=False)
    memory = module_memory(text, {}, (held,))
    assert (memory.peak_bytes, memory.at) == (800, "cpp_fused_1")
    assert {t.name: t.argument for t in memory.tensors} == {"buf0": -1, "buf1": -1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cpp_wrapper_src = (", "is not Python"),
        ("x = 1", "no function `call`"),
        (
            "def call(args):\n    buf0 = empty_strided_cpu((u0, ), (1, ), torch.float32)",
            "u0 is not known",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error(text: str, why: str) -> None:
    """A module that is not of the Python wrapper, or whose sizes are not known, has no peak."""
    with pytest.raises(ValueError, match=why):
        module_memory(text, {}, ())


def test_tensors_at_the_peak_are_named_with_their_reasons() -> None:
    """Outside of graphs, the tensors that the forward graph saved are named; inside of the
    backward graph also its buffers and gradients.
    """
    peaks = {
        "forward": PhasePeak(peak_bytes=92_307_472, after_call=1),
        "backward": PhasePeak(peak_bytes=100_749_320, after_call=2, is_inside=True),
    }
    record = MemoryRecord(source=ALLOCATOR, held_bytes=16_791_552, peaks=peaks, calls=CALLS)
    use = program_memory(record, MODULES)
    forward, backward = use.phases["forward"], use.phases["backward"]
    assert not use.problem
    assert forward.peak_bytes == 16_791_552 + 92_307_472
    assert {t.name: t.reason for t in forward.tensors if t.size_bytes > 1_000_000} == {
        "forward buf0": memory_use.SAVED,
        "forward buf1": memory_use.SAVED,
        "forward buf2": memory_use.SAVED,
    }
    assert (
        "33.6 MB, 4096x2048 float32 (forward buf1), made by aten.mul, aten.erf at model.py:7 in"
        " forward: saved for backward"
    ) in forward.groups
    assert backward.reason == memory_use.SAVED
    assert backward.at.startswith("cpp_fused__softmax_backward_data")
    named = {t.name: t.reason for t in backward.tensors}
    assert (named["forward buf0"], named["buf0"]) == (memory_use.SAVED, memory_use.AT_PEAK)
    assert named["buf3"] == memory_use.NEEDED
    assert named["buf4"] == memory_use.GRADIENT


def test_lifetimes_have_what_graphs_allocate_inside() -> None:
    """Without a run, the peak inside of a compiled graph is that of its module."""
    peaks = {"forward": PhasePeak(peak_bytes=92_307_472, after_call=1)}
    calls = (dataclasses.replace(CALLS[0], live_bytes=50_000_000),)
    use = program_memory(MemoryRecord(source=LIFETIMES, peaks=peaks, calls=calls), MODULES)
    assert use.phases["forward"].peak_bytes == 50_000_000 + 83_951_616
    assert use.phases["forward"].at == "cpp_fused__softmax_native_layer_norm_1"


def test_a_module_that_cannot_be_read_is_said_to_be_missing() -> None:
    """The peak of a run is known without its modules, and what is not counted is said."""
    peaks = {"forward": PhasePeak(peak_bytes=10, after_call=1, is_inside=True)}
    record = MemoryRecord(source=ALLOCATOR, peaks=peaks, calls=CALLS[:1])
    use = program_memory(record, {0: GeneratedModule("cpp_wrapper_src = (", {})})
    assert use.phases["forward"].peak_bytes == 10
    assert "is not Python" in use.problem


def _use(forward: int, backward: int, source: str = ALLOCATOR) -> MemoryUse:
    tensor = memory_use.NeededTensor(
        name="buf1",
        size_bytes=300_000_000,
        shape="8192x9155",
        dtype="float32",
        operator="aten.erf",
        line="model.py:7 in forward",
        reason=memory_use.RECOMPUTED,
        until="addmm",
    )
    phases = {
        "forward": PhaseUse(peak_bytes=forward),
        "backward": PhaseUse(peak_bytes=backward, at="cpp_fused_0", tensors=(tensor,)),
    }
    return MemoryUse(source=source, phases=phases)


def _seen(compiled: MemoryUse, eager: MemoryUse) -> Observation:
    memory = MemoryComparison(compiled=compiled, eager=eager)
    graph = GraphRecord(0, "dynamo", "0/0", 3)
    return Observation(exit_status=0, has_finished=True, memory=memory, graphs=(graph,))


def test_a_larger_peak_is_a_verdict_with_the_tensors() -> None:
    """The verdict has both peaks, the pass, the tensors and the user's line, and its signature has
    no size.
    """
    seen = _seen(_use(200_000_000, 700_000_000), _use(250_000_000, 300_000_000))
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.phase) == ("peak-memory", "kernel-run")
    assert verdict.reason == (
        "The compiled program needs 700.0 MB at its peak, in the backward pass in cpp_fused_0, and"
        " eager 300.0 MB: 2.33 times as much; the most of it: 300.0 MB, 8192x9155 float32 (buf1),"
        " made by aten.erf at model.py:7 in forward: recomputed for backward, until addmm."
    )
    assert verdict.evidence == (
        "Peak of the memory: forward 200.0 MB compiled and 250.0 MB in eager, backward 700.0 MB"
        " compiled and 300.0 MB in eager (measured by torch's allocator).",
        "300.0 MB, 8192x9155 float32 (buf1), made by aten.erf at model.py:7 in forward: recomputed"
        " for backward, until addmm",
    )
    assert verdict.work == {"line": "model.py:7 in forward"}
    assert sign_verdict(verdict, seen).title == (
        "peak-memory: kernel-run | backward, recomputed for backward"
    )
    assert is_tolerated(verdict, seen)
    assert not is_tolerated(verdict, dataclasses.replace(seen, fail_on=("peak-memory",)))


@pytest.mark.parametrize(
    ("compiled", "eager"),
    [(114_000_000, 100_000_000), (160_000_000, 100_000_000), (1_140_000_000, 1_000_000_000)],
)
def test_both_limits_must_be_exceeded(compiled: int, eager: int) -> None:
    """A peak is too large only with more than 1.15 times and 64 MB more; a note has the numbers."""
    seen = _seen(_use(0, compiled, LIFETIMES), _use(0, eager, LIFETIMES))
    verdict = judge_run(seen)
    assert verdict.kind == "ok"
    assert any("from the lifetimes of tensors, without running" in row for row in verdict.evidence)
