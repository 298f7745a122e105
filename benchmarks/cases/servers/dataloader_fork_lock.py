"""A data set that shares a cache with a thread of the main process, which holds its lock at a fork.

https://github.com/pytorch/pytorch/issues/1355 and https://github.com/pytorch/pytorch/issues/75147

Truth: the thread warm-up held cache_lock while the DataLoader forked its worker. The worker has a
locked copy and no such thread, and waits for it in __getitem__. The main process waits for a batch.

Words: fork|worker, lock
Run: {python} dataloader_fork_lock.py
Attach: root
Needs: torch
"""

import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

cache: dict[int, torch.Tensor] = {}
cache_lock = threading.Lock()


def warm_up() -> None:
    for number in range(3):
        with cache_lock:
            time.sleep(1)  # read a file
            cache[number] = torch.full((4,), float(number))


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> torch.Tensor:
        with cache_lock:  # HANG
            if number not in cache:
                cache[number] = torch.full((4,), float(number))
            return cache[number]


def main() -> None:
    threading.Thread(target=warm_up, name="warm-up", daemon=True).start()
    time.sleep(0.3)
    loader = DataLoader(Images(), batch_size=8, num_workers=1, multiprocessing_context="fork")
    print("ready", flush=True)
    for batch in loader:  # HANG
        print(batch.sum().item())


if __name__ == "__main__":
    main()
