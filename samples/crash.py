"""A crash: a nested jacfwd of a trace term is killed by SIGSEGV in the compiled kernel
(pytorch#190856, torch 2.13 CPU).

    reprokit capture samples/crash.py:make
"""

import torch


def energy(t):
    return torch.mean(1.0 / (t + torch.trace(t) * torch.eye(3, dtype=t.dtype)))


def make():
    torch.manual_seed(0)
    return torch.func.jacfwd(torch.func.jacfwd(energy)), (
        torch.rand(3, 3, dtype=torch.float64) + 0.1,
    )


if __name__ == "__main__":
    function, args = make()
    print(torch.compile(function)(*args))
