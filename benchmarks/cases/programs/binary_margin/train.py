import argparse

import torch
from torch import nn

from layers import BinaryBlock, Vote
from trainer import Trainer


def make_blobs(n, features, classes, seed):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randint(0, 2, (classes, features), generator=g) * 2.0 - 1
    y = torch.arange(n) % classes
    flip = torch.rand(n, features, generator=g) < 0.15
    return torch.where(flip, -centres[y], centres[y]), y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hidden", nargs="+", type=int, default=[24, 16])
    ap.add_argument("--classes", type=int, default=5)
    ap.add_argument("--steps", type=int, default=6)
    ap.add_argument("--margin", type=float, default=1.0)
    ap.add_argument("--check-every", type=int, default=3)
    args = ap.parse_args()

    torch.manual_seed(0)
    sizes = [20, *args.hidden]
    model = nn.Sequential(*(BinaryBlock(a, b) for a, b in zip(sizes, sizes[1:])), Vote(sizes[-1], args.classes))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    trainer = Trainer(model, opt, {"p": 1, "margin": args.margin}, args.check_every)
    x, y = make_blobs(40, 20, args.classes, seed=2)
    for step in range(args.steps):
        part = slice(step % 2 * 20, step % 2 * 20 + 20)
        loss = trainer.train_step(x[part], y[part])
        print(f"step {step} loss {loss:.4f}")
    print("accuracy", (model(x).argmax(1) == y).float().mean().item())


if __name__ == "__main__":
    main()
