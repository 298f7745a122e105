"""A healthy training with DDP, in which rank 1 is slower than rank 0.

Truth: it advances; a step takes 4 seconds, most of which rank 0 waits for rank 1.

Run: {python} -m torch.distributed.run --nproc-per-node 2 --standalone ddp_healthy.py
Settle: 15
Attach: root
Modes: busy
Needs: torch
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    print("ready", flush=True)
    for step in range(10_000):
        time.sleep(4 if dist.get_rank() == 1 else 0.2)  # read a shard
        model(torch.randn(4, 16)).square().mean().backward()
        if step % 50 == 0:
            print("step", step, flush=True)


if __name__ == "__main__":
    main()
