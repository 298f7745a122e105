import argparse
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from privacy import GaussianAccountant, PerSampleClipper
from quant import QuantLinear

DEFAULTS = dict(batch=16, steps=4, lr=0.3, max_norm=1.0, noise=0.8, bits=6, hidden=(14, 10))


def options():
    ap = argparse.ArgumentParser()
    for key, value in DEFAULTS.items():
        if isinstance(value, tuple):
            ap.add_argument("--" + key, type=lambda s: tuple(map(int, s.split(","))), default=value)
        else:
            ap.add_argument("--" + key, type=type(value), default=value)
    return SimpleNamespace(**vars(ap.parse_args()))


def build(hidden, bits, features=9, classes=3):
    layers, width = [], features
    for i, h in enumerate(hidden):
        kind = QuantLinear if i else nn.Linear
        layers += [kind(width, h) if not i else kind(width, h, bits=bits), nn.Tanh()]
        width = h
    return nn.Sequential(*layers, nn.Linear(width, classes))


def batches(opt):
    g = torch.Generator().manual_seed(1)
    centres = torch.randn(3, 9, generator=g)
    for _ in range(opt.steps):
        y = torch.randint(0, 3, (opt.batch,), generator=g)
        yield centres[y] + 0.5 * torch.randn(opt.batch, 9, generator=g), y


def main():
    opt = options()
    torch.manual_seed(0)
    model = build(opt.hidden, opt.bits)
    clipper = PerSampleClipper(model, F.cross_entropy, opt.max_norm, opt.noise)
    accountant = GaussianAccountant(opt.noise)
    sgd = torch.optim.SGD(model.parameters(), lr=opt.lr)
    for i, (x, y) in enumerate(batches(opt)):
        norms = clipper(x, y)
        sgd.step()
        accountant.step()
        with torch.no_grad():
            acc = (model(x).argmax(1) == y).float().mean()
        print(f"step {i} norm {norms.median():.3f} acc {acc:.2f} eps {accountant.epsilon(1e-5):.2f}")


if __name__ == "__main__":
    main()
