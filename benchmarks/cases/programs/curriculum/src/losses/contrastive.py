import torch
import torch.nn.functional as F

from ..schedule import anneal
from .base import Loss


class InfoNCE(Loss, key="info_nce"):
    def __init__(self, start=0.5, end=0.07):
        super().__init__()
        self.start, self.end = start, end

    def forward(self, a, b):
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        logits = a @ b.t() / anneal(self.start, self.end)
        target = torch.arange(len(a), device=a.device)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
