"""Train a recommender whose item table is kept inside the unit ball."""

import argparse
import json
import logging
import random

import torch
from torch import nn
import torch.nn.functional as F

log = logging.getLogger("recommend")


class Interactions:
    def __init__(self, path):
        with open(path) as file:
            self.rows = [json.loads(line) for line in file]
        self.users = 1 + max(row["user"] for row in self.rows)
        self.items = 1 + max(max(row["items"]) for row in self.rows)

    def triples(self, rng):
        for row in self.rows:
            seen = set(row["items"])
            for item in row["items"]:
                yield row["user"], item, rng.choice([i for i in range(self.items) if i not in seen])

    def batches(self, size, rng):
        triples = list(self.triples(rng))
        rng.shuffle(triples)
        for start in range(0, len(triples) - size + 1, size):
            yield torch.tensor(triples[start : start + size]).unbind(1)


class BallTable(nn.Module):
    """An embedding whose rows are projected to the ball before they are looked up."""

    def __init__(self, rows, width, radius=1.0):
        super().__init__()
        self.radius = radius
        self.weight = nn.Parameter(torch.randn(rows, width))
        self.rows = self.weight.detach()

    def project(self):
        lengths = self.rows.norm(dim=1, keepdim=True)
        self.rows.mul_((self.radius / lengths.clamp_min(1e-8)).clamp(max=1))

    def forward(self, index):
        if self.training:
            self.project()
        return F.embedding(index, self.weight)


class Tower(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Mish())]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(width))

    def forward(self, x):
        return x + self.layers(x)


class Recommender(nn.Module):
    def __init__(self, users, items, width, depth):
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = BallTable(items, width)
        self.tower = Tower(width, depth)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self, user, good, bad):
        query = self.tower(self.users(user))
        pair = torch.stack([good, bad], dim=1)
        scores = torch.einsum("bd,bkd->bk", query, self.items(pair)) + self.bias[pair]
        return scores[:, 0] - scores[:, 1]


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, count):
        self.total += value * count
        self.count += count

    @property
    def mean(self):
        return self.total / max(self.count, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="interactions.jsonl")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--decay", type=float, default=1e-4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    rng = random.Random(0)

    data = Interactions(args.data)
    model = Recommender(data.users, data.items, args.width, depth=2)
    compiled = torch.compile(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, weight_decay=args.decay)
    for epoch in range(args.epochs):
        model.train()
        losses, order = Meter(), Meter()
        for user, good, bad in data.batches(args.batch, rng):
            margin = compiled(user, good, bad)
            loss = F.softplus(-margin).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.add(loss.item(), len(user))
            order.add((margin > 0).float().mean().item(), len(user))
        longest = model.items.weight.norm(dim=1).max().item()
        log.info("epoch %d loss %.4f ordered %.3f longest row %.3f", epoch, losses.mean, order.mean, longest)


if __name__ == "__main__":
    main()
