"""Fit a small network to a noisy sine; ``--verify`` repeats the run with the plain optimizer."""
import argparse
import copy
import dataclasses
import os
import tempfile

import torch
from torch import nn

import optim


@dataclasses.dataclass
class Options:
    lr: float = 0.3
    window: int = 5
    steps: int = 8
    hidden: int = 12
    seed: int = 0
    verify: bool = True

    @classmethod
    def from_args(cls):
        ap = argparse.ArgumentParser(description=__doc__)
        for f in dataclasses.fields(cls):
            kind = (lambda s: s not in ("0", "no", "False")) if f.type is bool else f.type
            ap.add_argument(f"--{f.name}", type=kind, default=f.default)
        return cls(**vars(ap.parse_args()))


class Checkpoints:
    def __init__(self, folder):
        self.path = os.path.join(folder, "last.pt")

    def save(self, model, opt, step):
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, self.path)

    def load(self):
        return torch.load(self.path, weights_only=True)


def data(seed, n=48):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=g) * 6 - 3
    return x, torch.sin(x) + 0.05 * torch.randn(n, 1, generator=g)


def fit(model, x, y, options, fused, checkpoints=None):
    opt = optim.create("windowed", model.parameters(), lr=options.lr, window=options.window, fused=fused)
    for step in range(options.steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        if checkpoints:
            checkpoints.save(model, opt, step)
    return loss.item()


def main():
    options = Options.from_args()
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(1, options.hidden), nn.Tanh(), nn.Linear(options.hidden, 1))
    plain = copy.deepcopy(model)
    x, y = data(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder)
        loss = fit(model, x, y, options, True, checkpoints)
        restored = checkpoints.load()
    print(f"loss {loss:.5f} after {restored['step'] + 1} steps")
    if options.verify:
        fit(plain, x, y, options, False)
        for (name, a), b in zip(model.state_dict().items(), plain.state_dict().values()):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n} went astray: {m}")
        print("same as the plain optimizer")


if __name__ == "__main__":
    main()
