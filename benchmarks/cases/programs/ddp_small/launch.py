"""torchrun --nproc_per_node=N launch.py [config.yaml], or python launch.py for one rank."""
import sys

import torch
import yaml

from runner import dist_utils, models, train_loop


def main(path="config.yaml"):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    with dist_utils.process_group() as (rank, world):
        torch.manual_seed(1234)
        spec = dict(cfg["model"])
        model = models.build(spec.pop("name"), **spec)
        if rank == 0:
            print(f"{world} rank(s), {sum(p.numel() for p in model.parameters())} parameters")
        train_loop.train(model, cfg)


if __name__ == "__main__":
    main(*sys.argv[1:])
