"""A KV cache whose index is a plain integer: each token compiles again until the recompile limit.

    reprokit capture samples/kv_cache.py:make        recompile-limit in guards
    reprokit capture samples/kv_cache.py:make_fixed  ok, one graph

The value that changes is `self._current_idx`. In make_fixed it is a tensor.
"""

import torch
from torch import nn

TOKENS, LENGTH, WIDTH = 12, 16, 8


class Cache(nn.Module):
    def __init__(self, is_fixed):
        super().__init__()
        self.register_buffer("keys", torch.zeros(LENGTH, WIDTH))
        self._current_idx = torch.zeros(1, dtype=torch.long) if is_fixed else 0

    def forward(self, key):
        if isinstance(self._current_idx, int):
            self.keys[self._current_idx] = key[0]
        else:
            self.keys.index_copy_(0, self._current_idx, key)
        self._current_idx += 1
        return torch.softmax(self.keys @ key[0], 0)


def make(is_fixed=False):
    torch.manual_seed(0)
    calls = [((torch.randn(1, WIDTH),), {}) for _ in range(TOKENS)]
    return {"model": Cache(is_fixed), "calls": calls, "compile": {"backend": "aot_eager"}}


def make_fixed():
    return make(is_fixed=True)


if __name__ == "__main__":
    made = make()
    compiled = torch.compile(made["model"], **made["compile"])
    for args, _ in made["calls"]:
        print(compiled(*args).argmax().item())
