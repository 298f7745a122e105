"""A compile that grows without bound: each value is used twice, and Inductor counts the reads of the whole chain below
each of them (root of pytorch#192498, torch 2.13 CPU).

reprokit scale samples/superlinear_compile.py:make --set n=4,6,8,9,10
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
