"""A compile error from the C++ compiler: jacfwd of a chain of fp16 products (pytorch#194706, torch
2.13 CPU).

    reprokit capture samples/cpp_compile_error.py:make
"""

import torch


def chain(x):
    return torch.sum(torch.mm(torch.mm(torch.prod(x) + x, torch.sum(x) + x), torch.sum(x) + x))


def make():
    return torch.func.jacfwd(chain), (
        (torch.arange(1, 10, dtype=torch.float16) / 10).reshape(3, 3),
    )


if __name__ == "__main__":
    function, args = make()
    print(torch.compile(function)(*args))
