"""Forecast a series with convolutional branches that are applied in the order of their priority."""

import argparse
import contextlib
import json
import logging
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

log = logging.getLogger("forecast")


@dataclass(order=True)
class Branch:
    priority: int
    name: str = field(compare=False)
    kernel: int = field(compare=False, default=3)


class Base(nn.Module):
    def count(self):
        return sum(parameter.numel() for parameter in self.parameters())


class Cell(Base):
    def __init__(self, channels, kernel):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x):
        return x + torch.tanh(self.norm(self.conv(x)))


class Cascade(Base):
    def __init__(self, channels, branches):
        super().__init__()
        self.branches = branches
        self.cells = nn.ModuleDict({b.name: Cell(channels, b.kernel) for b in branches})
        self.gates = nn.ParameterDict({b.name: nn.Parameter(torch.ones(channels, 1)) for b in branches})

    def forward(self, x):
        for branch in sorted(self.branches):
            x = self.cells[branch.name](x) * self.gates[branch.name]
        return x


class Forecaster(Base):
    def __init__(self, channels, branches):
        super().__init__()
        self.lift = nn.Conv1d(1, channels, 1)
        self.cascade = Cascade(channels, branches)
        self.head = nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(4 * channels, 1))

    def forward(self, window):
        return self.head(self.cascade(self.lift(window.unsqueeze(1)))).squeeze(1)


class EarlyStop:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad > self.patience


@contextlib.contextmanager
def timed(what):
    begin = time.perf_counter()
    yield
    log.info("%s: %.2f s", what, time.perf_counter() - begin)


def load(path, length):
    with np.load(path) as content:
        values = torch.from_numpy((content["values"] - content["mean"]) / content["std"]).float()
    windows = values.unfold(0, length + 1, 3)
    return windows[:, :-1].contiguous(), windows[:, -1].contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="plan.json")
    parser.add_argument("--series", default="series.npz")
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4)

    with open(args.plan) as file:
        plan = json.load(file)
    model = Forecaster(plan["channels"], [Branch(**entry) for entry in plan["branches"]])
    log.info("%d parameters", model.count())
    compiled = torch.compile(model, backend="aot_eager")
    x, y = load(args.series, args.length)
    split = len(x) * 3 // 4
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr)
    stop = EarlyStop(patience=1)
    for epoch in range(args.epochs):
        with timed(f"epoch {epoch}"):
            for part in torch.randperm(split).split(split // 2):
                optimizer.zero_grad()
                loss = nn.functional.l1_loss(compiled(x[part]), y[part])
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(x[split:]), y[split:]).item()
        log.info("validation error %.4f", error)
        if stop(error):
            break
    torch.save({"model": model.state_dict(), "error": stop.best}, "forecaster.pt")


if __name__ == "__main__":
    main()
