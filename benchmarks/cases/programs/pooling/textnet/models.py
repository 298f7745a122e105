import torch
from torch import nn

from . import utils


class Highway(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, x):
        g = torch.sigmoid(self.gate(x))
        return g * torch.relu(self.body(x)) + (1 - g) * x


class SentenceEncoder(nn.Module):
    def __init__(self, buckets, dim=20, depth=2, pooling=("mean", "max"), classes=2, lead=4):
        super().__init__()
        self.pooling, self.lead = pooling, lead
        self.embed = nn.Embedding(buckets, dim, padding_idx=0)
        self.layers = nn.Sequential(*[Highway(dim) for _ in range(depth)])
        self.rnn = nn.Conv1d(dim, dim, 3, padding=1)
        self.head = nn.Linear(dim * (len(pooling) + bool(lead)), classes)

    def features(self, ids, lengths=None):
        x = self.layers(self.embed(ids))
        x = x + self.rnn(x.mT).mT
        parts = [utils.pool(x, how, lengths) for how in self.pooling]
        if self.lead:  # the first words once more
            parts.append(utils.pool(x, "mean", self.lead))
        return torch.cat(parts, dim=-1)

    def forward(self, ids, lengths=None):
        return self.head(self.features(ids, lengths))
