"""Blocks that are compiled one by one, each with its own function (pytorch#163329)."""

import torch

FUNCTIONS = (
    torch.sin,
    torch.cos,
    torch.tanh,
    torch.exp,
    torch.sigmoid,
    torch.relu,
    torch.abs,
    torch.neg,
    torch.square,
    torch.sinh,
)


class Block(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.processor = function

    def forward(self, x):
        return self.processor(self.linear(x)).clamp(-1, 1)


def main():
    torch.manual_seed(0)
    blocks = torch.nn.Sequential(*[Block(function) for function in FUNCTIONS])
    for block in blocks:
        block.compile()
    with torch.no_grad():
        for step in range(3):
            print("step", step, blocks(torch.randn(2, 4)).sum().item())


if __name__ == "__main__":
    main()
