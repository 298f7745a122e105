"""A compile that grows exponentially: each value is used twice, and Inductor writes the chain before
it once for each use (the cause of pytorch#192498, torch 2.13 CPU).

    reprokit scale samples/superlinear_compile.py:make --set n=6,8,10,11 --at 12

The verdict is superlinear-compile in codegen: exponential, about x2 a step, 0.5 s at n=6 and 5 s at
n=11.
"""

import torch


def make(n=8):
    def chain(x):
        for _ in range(n):
            x = x * x + 0.5
        return x

    return chain, (torch.randn(16),)


if __name__ == "__main__":
    function, args = make()
    print(torch.compile(function)(*args))
