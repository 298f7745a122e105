"""Symmetric memory where this torch does not keep it: the place has moved more than once.

reprokit capture -- python samples/symmetric_memory.py

says error-in-eager, since nothing was compiled yet; `reprokit env` and environment.json in the pack
say under symmetric_memory which places this torch has.
"""

import torch
import torch.distributed.symmetric_memory as symm_mem


def function(x):
    return symm_mem.rendezvous(x, "0").get_buffer(0, x.shape, x.dtype) + 1


if __name__ == "__main__":
    torch.compile(function)(symm_mem.empty(16, device="cuda"))
