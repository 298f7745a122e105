import sys

import torch

from counts import Histogram


class Pool(torch.nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.count = Histogram(bins)
        self.embed = torch.nn.Embedding(bins, 8)

    def forward(self, ids):
        weight = self.count(ids).float() / ids.numel()
        return weight @ self.embed.weight


bins = int(sys.argv[1])
pool = torch.compile(Pool(bins))
for _ in range(2):
    print(pool(torch.randint(0, bins, (4, 9))).sum())
