import torch


def block_mask(scores, size):
    mask = torch.full((size, size), -10000.0)
    index = torch.arange(size)
    mask[index.unsqueeze(0), index.unsqueeze(1)] = 0
    return torch.softmax(scores + mask, dim=-1)


from torch import nn

REGISTRY = {}


def register(name):
    def add(cls):
        REGISTRY[name] = cls
        return cls

    return add


class Block(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number, self.mix = number, nn.Linear(8, 8)

    def forward(self, x):
        x = torch.tanh(self.mix(x))
        return block_mask(x, 8) if self.number == 5 else x


@register("deep")
class Deep(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(i) for i in range(blocks)))

    def forward(self, x):
        return self.blocks(x)


def build(name, **options):
    return REGISTRY[name](**options)
