from torch import nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1), nn.GroupNorm(2, width), nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.GroupNorm(2, 2 * width), nn.SiLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, dim))

    def forward(self, x):
        return F.normalize(self.head(self.net(x)), dim=-1)
