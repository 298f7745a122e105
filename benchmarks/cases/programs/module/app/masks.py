import torch


def block_mask(scores, size):
    mask = torch.full((size, size), -10000.0)
    index = torch.arange(size)
    mask[index.unsqueeze(0), index.unsqueeze(1)] = 0
    return torch.softmax(scores + mask, dim=-1)
