"""An import of symmetric memory from a module that this torch does not have: the module has moved
more than once.

    reprokit capture -- python samples/symmetric_memory.py

The verdict is error-in-eager, because nothing is compiled yet. `reprokit env` and environment.json
in the pack list under symmetric_memory the modules that this torch has.
"""

import torch
import torch.distributed.symmetric_memory as symm_mem


def function(x):
    return symm_mem.rendezvous(x, "0").get_buffer(0, x.shape, x.dtype) + 1


if __name__ == "__main__":
    torch.compile(function)(symm_mem.empty(16, device="cuda"))
