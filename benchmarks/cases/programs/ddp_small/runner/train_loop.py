import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from .dist_utils import rank_zero_only


@rank_zero_only
def report(epoch, **values):
    print(f"epoch {epoch} " + " ".join(f"{k}={v:.4f}" for k, v in values.items()), flush=True)


def loader_for(cfg):
    g = torch.Generator().manual_seed(1)
    y = torch.randint(0, 4, (cfg["samples"],), generator=g)
    x = torch.randn(cfg["samples"], 1, 16, 16, generator=g)
    for i, t in enumerate(y):
        x[i, 0, t * 4 : t * 4 + 4] += 1.5
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    return DataLoader(data, batch_size=cfg["batch"], sampler=sampler), sampler


def average(value):
    t = torch.tensor([value])
    dist.all_reduce(t)
    return t.item() / dist.get_world_size()


def train(model, cfg):
    ddp = DDP(model, **cfg["ddp"])
    net = torch.compile(ddp) if cfg["compile"] else ddp
    opt = torch.optim.AdamW(ddp.parameters(), lr=cfg["lr"])
    scaler = torch.amp.GradScaler("cpu", enabled=cfg["amp"])
    loader, sampler = loader_for(cfg)
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        seen = 0.0
        for x, y in loader:
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=cfg["amp"]):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            seen += loss.item()
        report(epoch, loss=average(seen / len(loader)))
