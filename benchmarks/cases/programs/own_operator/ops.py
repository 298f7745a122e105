import torch


@torch.library.custom_op("scan::windows", mutates_args=())
def windows(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.unfold(-1, size, 1).contiguous()


@windows.register_fake
def _(x, size):
    return x.new_empty(*x.shape[:-1], x.shape[-1] // size, size)
