"""A wrong result: a shift in place through a clone; the compiler drops the clone (pytorch#197829,
torch 2.13 CPU).

    reprokit capture samples/wrong_result.py:make

The verdict is wrong-result in inductor: compiled code is the wrong side, and the pass
`reinplace_inplaceable_ops` causes it. The pack has a repro of a dozen lines that compares both
results itself.
"""

import torch


def shift(x):
    x[1:] = x[:-1].clone()
    return x


def make():
    return shift, (torch.arange(24.0).reshape(6, 4),)


if __name__ == "__main__":
    function, args = make()
    print("eager    ", shift(args[0].clone())[:, 0].tolist())
    print("compiled ", torch.compile(function)(args[0].clone())[:, 0].tolist())
