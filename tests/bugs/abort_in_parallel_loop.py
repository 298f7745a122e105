"""Eager raises an IndexError that is caught; compiled code throws inside an OpenMP loop and aborts
(with two or more threads).
"""

import torch

torch.set_num_threads(2)


def make():
    def function(x, i):
        try:
            return x[i] + 1
        except IndexError:
            return x

    return function, (torch.randn(10), torch.full((100000,), 12))
