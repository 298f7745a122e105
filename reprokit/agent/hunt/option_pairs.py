"""Chains of operators that are compiled with a pair of options of Inductor."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable

from . import operator_chains
from .drawing import Drawing

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


def write_program(draw: Drawing) -> str:
    """Return a chain of operators with one or two options, and with no other argument."""
    import torch._inductor.config as config

    known = {row[0]: row[1] for row in OPTIONS if row[0] in config._config}  # type: ignore[attr-defined]
    chosen: dict[str, object] = {}
    for _ in range(draw.random.randint(1, 2)):
        name = draw.choose("option", [*known])
        chosen[name] = draw.random.choice(known[name])
    chain = operator_chains.write_chain(draw)
    return dataclasses.replace(chain, options=f'{{"options": {chosen!r}}}').text()


def reduce_options(text: str, is_same: Callable[[str], bool]) -> str:
    """Return the program with the options that its failure needs.

    ``is_same`` runs a program with fewer options, and says whether it fails in the same way.
    """
    options = options_of(text)
    for name in [*options]:
        fewer = {key: value for key, value in options.items() if key != name}
        shorter = text.replace(_options_text(options), _options_text(fewer))
        if shorter != text and is_same(shorter):
            text, options = shorter, fewer
    return text


def options_of(text: str) -> dict[str, object]:
    """Return the options of Inductor in a program of this source; empty for another program."""
    if written := _OPTIONS.search(text):
        found: dict[str, object] = ast.literal_eval(written["options"])
        return found
    return {}


def _options_text(options: dict[str, object]) -> str:
    return f'{{"options": {options!r}}}' if options else "{}"


_OPTIONS = re.compile(r"""["']compile["']: \{["']options["']: (?P<options>\{.*?\})\}""")
