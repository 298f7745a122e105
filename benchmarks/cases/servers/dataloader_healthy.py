"""A healthy DataLoader with two workers, whose samples take some seconds.

Truth: it advances; a batch takes up to 6 seconds.

Run: {python} dataloader_healthy.py
Attach: root
Modes: busy
Needs: torch
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(3)  # a slow disk
        return torch.full((4,), float(number))


def main() -> None:
    loader = DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    print("ready", flush=True)
    weight = torch.zeros(4, requires_grad=True)
    for step, batch in enumerate(loader):
        (batch * weight).sum().backward()
        if step % 10 == 0:
            print("step", step, flush=True)


if __name__ == "__main__":
    main()
