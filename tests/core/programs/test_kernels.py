"""Kernels of Inductor become independent programs. They are parsed without torch and without
Triton.
"""

from __future__ import annotations

import ast

from reprokit.core.reduce.passes import kernel_arguments
from reprokit.core.reduce.passes.statements import shrink_numbers
from reprokit.core.shared.source import triton_programs

MODULE = """
async_compile = AsyncCompile()
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(size_hints={'x': 64}, filename=__file__)
@triton.jit
def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(out_ptr0 + x, triton_helpers.maximum(libdevice.erf(tl.load(in_ptr0 + x)), tl_math.abs(x)))
''', device_str='cuda')
cpp_fused = async_compile.cpp_pybinding(['float*'], 'int main')
"""
HELPERS = """
@triton.jit
def is_floating(x):
    return x
@triton.jit
def maximum(a, b):
    return tl.where(is_floating(a), a, b)
@triton.jit
def unread(a):
    return a
@triton_builtin
def next_power(x):
    return x
"""
CALL = triton_programs.TritonCall(
    {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"},
    {(3,): 64},
    {(0,): [["tt.divisibility", 16]], (2,): [["tt.divisibility", 16]]},
    ("cuda", 90, 32),
    {"num_warps": 4},
)
((NAME, SOURCE),) = triton_programs.find_kernels(MODULE).items()
PROGRAM = triton_programs.generated_program(NAME, SOURCE, HELPERS, CALL)


def test_a_kernel_stands_alone() -> None:
    """Decorators and imports of torch are removed, helpers that are read come first, and other
    helpers are left out.
    """
    assert (
        NAME == "triton_poi_fused_add_0"
        and "torch" not in PROGRAM
        and "triton_heuristics" not in PROGRAM
    )
    tree = ast.parse(PROGRAM)
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert names == ["is_floating", "maximum", NAME]
    assert "maximum(libdevice.erf(" in PROGRAM and "tl.math.abs(" in PROGRAM
    assert (
        "from triton.language.extra import libdevice" in PROGRAM
        and triton_programs.is_kernel_program(PROGRAM)
    )
    assert "target=GPUTarget('cuda', 90, 32), options={'num_warps': 4}" in PROGRAM


def test_a_helper_that_only_torch_can_build_is_imported_from_torch() -> None:
    """A program that needs torch is better than one that does not run."""
    program = triton_programs.generated_program(
        NAME, SOURCE.replace("triton_helpers.maximum", "triton_helpers.next_power"), HELPERS, CALL
    )
    assert "from torch._inductor.runtime.triton_helpers import next_power" in program


def test_equal_kernels_are_one() -> None:
    """Inductor numbers its kernels: a different number is the same kernel, a different size is
    not.
    """
    again = SOURCE.replace(NAME, "triton_poi_fused_add_7")
    assert triton_programs.kernel_identity(NAME, SOURCE) == triton_programs.kernel_identity(
        "triton_poi_fused_add_7", again
    )
    assert triton_programs.kernel_identity(NAME, SOURCE) != triton_programs.kernel_identity(
        NAME, SOURCE.replace("64", "128")
    )


def test_a_variant_is_a_program_too() -> None:
    """The program contains a different capability, a name of an architecture that Triton would not
    choose, and a different ptxas.
    """
    variant = triton_programs.program_variant(PROGRAM, 101, "sm_101", "/opt/ptxas")
    assert (
        "GPUTarget('cuda', 101, 32)" in variant
        and "sm_arch_from_capability = lambda capability: 'sm_101'" in variant
    )
    assert "os.environ['TRITON_PTXAS_PATH'] = '/opt/ptxas'" in variant
    ast.parse(variant)
    assert triton_programs.program_variant(PROGRAM, 90) == PROGRAM


def test_arguments_that_are_not_read_are_removed_with_their_metadata() -> None:
    """Their names leave the signature, and the entries keyed by later positions move up."""
    text = kernel_arguments.drop_kernel_arguments(PROGRAM, lambda new: True)
    assert "def kernel(in_ptr0, out_ptr0, XBLOCK: tl.constexpr)" in text and NAME not in text
    assert "signature={'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'XBLOCK': 'constexpr'}" in text
    assert "constexprs={(2,): 64}" in text and "attrs={(0,): [['tt.divisibility', 16]]}" in text
    assert kernel_arguments.drop_kernel_arguments(PROGRAM, lambda new: False) == PROGRAM
    assert kernel_arguments.drop_kernel_arguments("print(1)\n", lambda new: True) == "print(1)\n"


def test_a_device_is_not_made_smaller() -> None:
    """GPUs have no warp of one thread and no capability of 1."""
    assert "GPUTarget('cuda', 90, 32)" in shrink_numbers(PROGRAM, lambda new: True)
