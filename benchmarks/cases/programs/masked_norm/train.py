"""Train a classifier whose layers are normalised by a hand-written autograd function."""

import argparse
import csv
import logging

import torch
from torch import nn

log = logging.getLogger("train")


class RowNorm(torch.autograd.Function):
    """Rows of unit length, and the length that each row had (for the statistics only)."""

    @staticmethod
    def forward(ctx, x, eps):
        ctx.set_materialize_grads(False)
        length = x.square().sum(-1, keepdim=True).add(eps).sqrt()
        rows = x / length
        ctx.save_for_backward(rows, length)
        return rows, length

    @staticmethod
    def backward(ctx, grad_rows, grad_length):
        if grad_length is not None:
            raise NotImplementedError("the length is for statistics, it has no gradient")
        if grad_rows is None:
            return None, None
        rows, length = ctx.saved_tensors
        along = (grad_rows * rows).sum(-1, keepdim=True)
        return (grad_rows - along * rows) / length, None


class UnitRows(nn.Module):
    def __init__(self, width, eps=1e-6, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gain = nn.Parameter(torch.ones(width) * width**0.5)
        self.register_buffer("mean_length", torch.ones(()))

    def forward(self, x):
        rows, length = RowNorm.apply(x, self.eps)
        if self.training:
            self.mean_length.lerp_(length.detach().mean(), self.momentum)
        return rows * self.gain


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = UnitRows(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Classifier(nn.Module):
    def __init__(self, inputs, width, depth, classes):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Sequential(UnitRows(width), nn.Linear(width, classes))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


class Engine:
    def __init__(self, model, lr, compiled):
        self.model = model
        self.run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        self.optimizer = torch.optim.NAdam(model.parameters(), lr=lr)
        self.best = 0.0

    def epoch(self, x, y, size):
        self.model.train()
        total = 0.0
        for part in torch.randperm(len(x)).split(size):
            loss = nn.functional.cross_entropy(self.run(x[part]), y[part], label_smoothing=0.05)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(part)
        return total / len(x)

    @torch.no_grad()
    def accuracy(self, x, y):
        self.model.eval()
        return (self.model(x).argmax(-1) == y).float().mean().item()

    def save(self, path, value):
        if value > self.best:
            self.best = value
            torch.save({"model": self.model.state_dict(), "accuracy": value}, path)


def read(path):
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    log.info("%d rows with %s", len(rows), ", ".join(header))
    table = torch.tensor([[float(cell) for cell in row] for row in rows])
    return table[:, :-1], table[:, -1].long()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="rows.csv")
    parser.add_argument("--stem", default="stem.pt")
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--no-compile", dest="compiled", action="store_false")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.manual_seed(0)
    x, y = read(args.rows)
    model = Classifier(x.shape[1], 12, args.depth, 4)
    model.load_state_dict(torch.load(args.stem, weights_only=True), strict=False)
    engine = Engine(model, 0.02, args.compiled)
    for epoch in range(args.epochs):
        loss = engine.epoch(x[:60], y[:60], 20)
        accuracy = engine.accuracy(x[60:], y[60:])
        log.info("epoch %d loss %.4f accuracy %.3f", epoch, loss, accuracy)
        engine.save("best.pt", accuracy)
    best = torch.load("best.pt", weights_only=True)
    log.info("best accuracy %.3f", best["accuracy"])


if __name__ == "__main__":
    main()
