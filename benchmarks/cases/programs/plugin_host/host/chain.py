from torch import nn


class Chain(nn.Module):
    """The network: a lift, the blocks of the plugins, a read out."""

    def __init__(self, blocks, inputs, width, outputs):
        super().__init__()
        self.lift = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(blocks)
        self.read = nn.Linear(width, outputs)

    def forward(self, x):
        h = self.lift(x)
        for block in self.blocks:
            h = block(h)
        return self.read(h.mean(1))
