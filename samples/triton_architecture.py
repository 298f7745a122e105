"""Triton appends an "a" to every architecture from sm_90 on, and a ptxas may not know the result:
sm_101a.

    reprokit kernel samples/triton_architecture.py --arch 100,101

sm_100a compiles. sm_101a fails in ptxas with "Value 'sm_101a' is not defined for option
'gpu-name'", and this ptxas does not know sm_101 either. A cubin for sm_100a does not run on a device
of capability 10.1. ``--ptxas PATH`` tries a different ptxas; TRITON_PTXAS_PATH (from sm_100 on
TRITON_PTXAS_BLACKWELL_PATH) sets it in Triton.

    reprokit capture --model llama-tiny --gpu gpu.json

This command reports the same failure in a model if gpu.json has a GPU of capability 10.1.
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
