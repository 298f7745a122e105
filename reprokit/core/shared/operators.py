"""Names of torch's operators and passes."""

from __future__ import annotations

import re


def plain_operator(name: str) -> str:
    """Return the name of a pass, an operator or a lowering without the number that FX appends to a
    node.
    """
    return re.sub(r"_\d+$", "", name)


OBSERVED = "_as_observed"
"""The end of the name of a function that stands for an operator whose library is not there."""
_OF_TORCH = frozenset(
    "aten prim prims rngprims debugprims inductor inductor_prims _inductor_test higher_order"
    " quantized _quantized quantized_decomposed c10d _c10d_functional _c10d_functional_autograd"
    " c10d_functional fsdp symm_mem mkl mkldnn onednn mkldnn_prims profiler streams torch_attn"
    " torch _dtensor bucketing device_mesh _inductor mkldnn_prepacked sparse export static_runtime"
    " quantization".split()
)
"""Namespaces of torch's own operators."""


def is_torch_namespace(namespace: str) -> bool:
    """Return whether the operators of this namespace are torch's."""
    return namespace in _OF_TORCH
