"""An early exit on a value: Dynamo cannot know it while it traces, so the whole function runs
without the compiler.

reprokit capture samples/graph_break.py:make says: graph-break in dynamo-trace, nothing was
compiled, with the line and the reason, although the program itself ends well.
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
