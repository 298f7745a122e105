"""An exception inside Inductor: outer-loop fusion in the C++ backend loses a buffer
(pytorch#196570, torch 2.13 CPU).

    reprokit capture samples/exception_inductor.py:make
"""

import torch


def masked_softmax(x):
    mask = torch.full((8, 8), -10000.0)
    mask[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
    return torch.softmax(x + mask, dim=-1)


def make():
    return masked_softmax, (torch.randn(8, 8),)


if __name__ == "__main__":
    function, args = make()
    print(torch.compile(function)(*args))
