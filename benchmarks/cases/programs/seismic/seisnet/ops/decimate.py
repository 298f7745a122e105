"""Decimation with an average over each group of samples; the last group may be short."""
import torch
from torch import Tensor


@torch.library.custom_op("seisnet::decimate", mutates_args=())
def decimate(trace: Tensor, factor: int) -> Tensor:
    length = trace.shape[-1]
    groups = -(-length // factor)
    padded = torch.nn.functional.pad(trace, (0, groups * factor - length))
    count = torch.full((groups,), float(factor), dtype=trace.dtype)
    count[-1] = length - (groups - 1) * factor
    return padded.unflatten(-1, (groups, factor)).sum(-1) / count


@decimate.register_fake
def _(trace, factor):
    return trace.new_empty(*trace.shape[:-1], trace.shape[-1] // factor)


def _setup(ctx, inputs, output):
    ctx.length, ctx.factor = inputs[0].shape[-1], inputs[1]


def _backward(ctx, grad):
    spread = grad.repeat_interleave(ctx.factor, dim=-1) / ctx.factor
    return spread[..., : ctx.length], None


decimate.register_autograd(_backward, setup_context=_setup)
