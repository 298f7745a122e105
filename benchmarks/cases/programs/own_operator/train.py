import torch

import ops


class Smooth(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        rows = ops.windows(x.cumsum(-1), self.size)
        return rows.reshape(*x.shape[:-1], -1).softmax(-1)


print(torch.compile(Smooth(3))(torch.randn(4, 9)).shape)
