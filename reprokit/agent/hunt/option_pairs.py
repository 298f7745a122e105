"""Chains of operators that are compiled with a pair of options of Inductor."""

from __future__ import annotations

import random

from . import operator_chains

OPTIONS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("epilogue_fusion", (False,)),
    ("pattern_matcher", (False,)),
    ("split_reductions", (False,)),
    ("comprehensive_padding", (False,)),
    ("inplace_buffers", (False,)),
    ("allow_buffer_reuse", (False,)),
    ("memory_planning", (True,)),
    ("size_asserts", (False,)),
    ("reorder_for_locality", (False,)),
    ("reorder_for_peak_memory", (False,)),
    ("loop_ordering_after_fusion", (True, False)),
    ("aggressive_fusion", (True,)),
    ("max_fusion_size", (1, 2)),
    ("realize_reads_threshold", (1,)),
    ("realize_opcount_threshold", (1,)),
    ("unroll_reductions_threshold", (1,)),
    ("permute_fusion", (True,)),
    ("joint_graph_constant_folding", (False,)),
    ("freezing", (True,)),
    ("emulate_precision_casts", (True,)),
    ("dce", (True,)),
    ("cpp_wrapper", (True,)),
    ("cpp.simdlen", (0, 1)),
    ("cpp.enable_kernel_profile", (True,)),
    ("cpp.min_chunk_size", (1,)),
    ("cpp.enable_tiling_heuristics", (False,)),
    ("cpp.enable_loop_tail_vec", (False,)),
    ("cpp.fallback_scatter_reduce_sum", (False,)),
    ("cpp.enable_grouped_gemm_template", (True,)),
    ("graph_partition", (True,)),
    ("combo_kernels", (True,)),
)
"""Options of torch 2.13 that must not change a result, and values that are not their defaults on a
CPU.
"""


def write_program(draw: random.Random) -> str:
    """Return a chain of operators with one or two options, and with no other argument."""
    import torch._inductor.config as config

    known = [row for row in OPTIONS if row[0] in config._config]  # type: ignore[attr-defined]
    chosen = {name: draw.choice(values) for name, values in draw.sample(known, draw.randint(1, 2))}
    chain = operator_chains.write_chain(draw)
    return operator_chains.program_text(chain, f'{{"options": {chosen!r}}}')
