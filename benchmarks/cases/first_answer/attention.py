"""Attention with a mask that is filled by index: Inductor raises KeyError (pytorch#196570)."""

import torch


def attend(scores):
    size = scores.shape[0]
    mask = torch.full((size, size), -10000.0)
    mask[torch.arange(size).unsqueeze(0), torch.arange(size).unsqueeze(1)] = 0
    return torch.softmax(scores + mask, dim=-1)


def main():
    torch.manual_seed(0)
    keys, values = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    weights_of = torch.compile(attend)
    for step in range(3):
        with torch.no_grad():
            x = torch.randn(8, 8)
            weights = weights_of(x @ keys(x).T)
            print("step", step, (weights @ values(x)).sum().item(), flush=True)


if __name__ == "__main__":
    main()
