"""A training with DDP, in which the prefetch thread of rank 1 has died.

https://github.com/pytorch/pytorch/issues/87995 (one rank waits in queue.get of its prefetch, all
other ranks wait for it in all_reduce)

Truth: rank 1 waits for a batch in prefetched.get. The thread that fills the queue has ended with an
exception. Rank 0 waits in backward for the gradients of rank 1.

Words: rank 0, rank 1, queue|data
Run: {python} -m torch.distributed.run --nproc-per-node 2 --standalone ddp_rank_without_data.py
Settle: 15
Attach: root
Needs: torch
"""

import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def prefetch(rank: int, prefetched: "queue.Queue[torch.Tensor]") -> None:
    for number in range(1000):
        if rank == 1 and number == 7:
            raise OSError("stale file handle: shard-00017.tar")
        prefetched.put(torch.full((4, 16), float(number)))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    prefetched: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
    threading.Thread(target=prefetch, args=(rank, prefetched), daemon=True).start()
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    print("ready", flush=True)
    for _ in range(1000):
        batch = prefetched.get()  # HANG
        loss = model(batch).square().mean()
        loss.backward()  # HANG
        optimizer.step()


if __name__ == "__main__":
    main()
