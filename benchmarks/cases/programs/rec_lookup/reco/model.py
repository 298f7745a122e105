import torch
from torch import nn


class Prior(nn.Module):
    """Popularity of items, with a floor."""

    def __init__(self, items):
        super().__init__()
        self.register_buffer("log_popularity", -torch.arange(1, items + 1).float().log())
        self.scale = nn.Parameter(torch.tensor(0.3))

    def forward(self, item):
        return self.scale * self.log_popularity[item].clamp(min=-5)


class Tower(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, dim) * dim**-0.5)
        self.mix = nn.Linear(dim, dim)

    def forward(self):
        return self.table + torch.tanh(self.mix(self.table))


class TwoTower(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.user, self.item = Tower(users, dim), Tower(items, dim)
        self.prior = Prior(items)

    def forward(self, user, item):
        affinity = (self.user() @ self.item().t())[user % self.user.table.shape[0], 0]
        return torch.sigmoid(affinity + self.prior(item))
