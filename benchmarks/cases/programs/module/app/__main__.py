import sys

import torch

from .settings import Settings
from .steps import loss_of


def main(arguments):
    settings = Settings.read(arguments)
    weight = torch.randn(settings.size, settings.size, requires_grad=True)
    step = torch.compile(loss_of)
    for _ in range(settings.steps):
        step(weight, torch.randn(settings.size, settings.size)).backward()


main(sys.argv[1:])
