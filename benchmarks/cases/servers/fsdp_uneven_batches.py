"""A validation with FSDP2, in which rank 1 has fewer batches than rank 0.

https://github.com/PrimeIntellect-ai/prime-rl/issues/2515

Truth: rank 0 is in the forward pass of one more batch, which gathers the parameters from all
ranks. Rank 1 has left the loop and waits in all_reduce for the sum of the losses.

Words: rank 0, rank 1
Run: {python} -m torch.distributed.run --nproc-per-node 2 --standalone fsdp_uneven_batches.py
Settle: 15
Attach: root
Needs: torch
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def batches(rank: int) -> list[torch.Tensor]:
    """Packed batches: their number depends on the lengths of the samples of this rank."""
    return [torch.randn(4, 16) for _ in range(6 if rank == 0 else 5)]


def run_eval(model: torch.nn.Module, rank: int) -> float:
    total = torch.zeros(1)
    for batch in batches(rank):
        with torch.no_grad():
            total += model(batch).square().mean()  # HANG
    dist.all_reduce(total)  # HANG
    return total.item()


def main() -> None:
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    print("ready", flush=True)
    print(run_eval(model, dist.get_rank()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
