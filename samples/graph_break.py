"""An early exit that depends on a value: Dynamo does not know the value while it traces, so the
whole function runs without the compiler.

    reprokit capture samples/graph_break.py:make

The verdict is graph-break in dynamo-trace: nothing is compiled, although the program succeeds. The
verdict has the line and the reason.
"""

import torch


def halve(x):
    for _ in range(4):
        x = x * 0.5
        if x.abs().max().item() < 0.2:
            break
    return x.sin()


def make():
    return halve, (torch.linspace(-1, 1, 8),)


if __name__ == "__main__":
    function, args = make()
    print(torch.compile(function)(*args))
