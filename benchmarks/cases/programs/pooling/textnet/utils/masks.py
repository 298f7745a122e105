"""One function for all the ways in which callers tell us what is padding."""
from functools import singledispatch

import torch


@singledispatch
def as_mask(spec, length):
    raise TypeError(f"no mask from {type(spec).__name__}")


@as_mask.register(int)
def _(spec, length):
    return (torch.arange(length) < spec)[None]


@as_mask.register(torch.Tensor)
def _(spec, length):
    if spec.dtype == torch.bool:
        return spec
    return torch.arange(length, device=spec.device)[None] < spec[:, None]


@as_mask.register(list)
def _(spec, length):
    return as_mask(torch.tensor(spec), length)
