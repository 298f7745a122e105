"""A hang: a custom pass on Inductor's graph waits for a lock that its own thread holds.

reprokit capture samples/hang.py:make --stall 10
"""

import threading

import torch
import torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass

lock = threading.Lock()


class WaitsForItself(CustomGraphPass):
    def __call__(self, graph):
        with lock, lock:
            pass

    def uuid(self):
        return None


def function(x):
    return torch.relu(x @ x).sum()


def make():
    torch._inductor.config.post_grad_custom_post_pass = WaitsForItself()
    return function, (torch.randn(16, 16),)


if __name__ == "__main__":
    function, args = make()
    print(torch.compile(function)(*args))
