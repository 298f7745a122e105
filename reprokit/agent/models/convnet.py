"""A residual convolutional network with batch norm; the width doubles with every second block,
three times.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        stride = 2 if out != width else 1
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(width, out, 1, stride, bias=False) if out != width else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ConvNet(nn.Module):
    def __init__(self, layers, channels, classes):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
        width, blocks = channels, []
        for block in range(layers):
            out = width * 2 if block and block % 2 == 0 and width < 8 * channels else width
            blocks.append(Block(width, out))
            width = out
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, classes)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def make(layers, channels, image, classes, batch_size):
    """Give the model and its arguments: images of shape (batch_size, 3, image, image)."""
    return ConvNet(layers, channels, classes), (torch.randn(batch_size, 3, image, image),)
