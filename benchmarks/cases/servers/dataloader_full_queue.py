"""A data set whose workers report each sample in a bounded queue that is read after the epoch.

https://github.com/pytorch/pytorch/issues/804 (workers hang in queue.put) and
https://github.com/RolnickLab/ami-data-companion/issues/140

Truth: the queue of statistics is full, so the workers wait in its put within __getitem__. The main
process waits for the next batch, and reads the queue only after the epoch.

Words: worker, queue|put
Run: {python} dataloader_full_queue.py
Attach: root
Needs: torch
"""

import multiprocessing

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    def __init__(self, statistics: "multiprocessing.Queue[float]") -> None:
        self.statistics = statistics

    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> torch.Tensor:
        sample = torch.full((3, 8, 8), float(number))
        self.statistics.put(sample.mean().item())  # HANG
        return sample


def main() -> None:
    context = multiprocessing.get_context("fork")
    statistics: multiprocessing.Queue[float] = context.Queue(maxsize=50)
    loader = DataLoader(
        Images(statistics), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    print("ready", flush=True)
    total = 0.0
    for batch in loader:  # HANG
        total += batch.sum().item()
    print(total, [statistics.get() for _ in range(len(loader.dataset))])


if __name__ == "__main__":
    main()
