"""Triton appends an "a" to every architecture from sm_90 on, and a ptxas need not know what comes
out: sm_101a.

reprokit kernel samples/triton_architecture.py --arch 100,101 says: sm_100a compiles; sm_101a fails
in ptxas, "Value 'sm_101a' is not defined for option 'gpu-name'". Without the "a" this ptxas does
not know it either; for sm_100a it compiles, and that cubin does not run on a device of capability
10.1. With --ptxas PATH another one is tried; TRITON_PTXAS_PATH (from sm_100 on
TRITON_PTXAS_BLACKWELL_PATH) makes Triton take it.

reprokit capture --model llama-tiny --gpu gpu.json, with a GPU of capability 10.1 in gpu.json, finds
the same in a model.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)


signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
source = triton.compiler.ASTSource(
    fn=add_one, signature=signature, constexprs={(3,): 128}, attrs={}
)
triton.compile(source, target=GPUTarget("cuda", 101, 32), options={"num_warps": 4})
