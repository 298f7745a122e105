"""Train a regressor with quantised activations and clipped per-sample gradients."""

import argparse
import csv
import logging
from dataclasses import dataclass

import torch
import yaml
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

log = logging.getLogger("private")


@dataclass(frozen=True)
class Config:
    width: int
    levels: int
    clip: float
    noise: float
    rate: float
    epochs: int
    batch: int

    @classmethod
    def read(cls, path):
        with open(path) as file:
            return cls(**yaml.safe_load(file))


class RoundThrough(torch.autograd.Function):
    """Round to a grid; the gradient passes as if nothing were rounded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, levels):
        return torch.round(x * levels) / levels

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1), None


class Quantised(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = levels

    def forward(self, x):
        return RoundThrough.apply(x, self.levels)


class Regressor(nn.Module):
    def __init__(self, inputs, config):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, config.width),
            nn.Tanh(),
            Quantised(config.levels),
            nn.Linear(config.width, config.width),
            nn.Hardtanh(),
            nn.Linear(config.width, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class PrivateTrainer:
    def __init__(self, model, config, seed):
        self.model, self.config = model, config
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.rate, momentum=0.5)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.generator = torch.Generator().manual_seed(seed)
        self.per_sample = torch.compile(vmap(grad_and_value(self.loss), in_dims=(None, 0, 0)))

    def loss(self, parameters, x, y):
        prediction = functional_call(self.model, parameters, (x.unsqueeze(0),))
        return nn.functional.huber_loss(prediction, y.unsqueeze(0))

    def step(self, x, y):
        parameters = {name: p.detach() for name, p in self.model.named_parameters()}
        grads, losses = self.per_sample(parameters, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (self.config.clip / (norms + 1e-6)).clamp(max=1)
        for name, parameter in self.model.named_parameters():
            mean = torch.einsum("n...,n->...", grads[name], factor) / len(x)
            noise = torch.randn(mean.shape, generator=self.generator)
            parameter.grad = mean + noise * self.config.noise / len(x)
        self.optimizer.step()
        return losses.mean().item(), norms.mean().item(), grads["layers.0.weight"].abs().mean().item()

    def epoch(self, x, y):
        order = torch.randperm(len(x), generator=self.generator)
        results = [self.step(x[part], y[part]) for part in order.split(self.config.batch)]
        self.schedule.step()
        return [sum(column) / len(column) for column in zip(*results)]


def read_table(path):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != "target"]
    x = torch.tensor([[float(row[name]) for name in names] for row in rows])
    y = torch.tensor([float(row["target"]) for row in rows])
    return (x - x.mean(0)) / x.std(0), y


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="config.yaml")
    parser.add_argument("--data", default="sensors.csv")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    config = Config.read(args.config)
    x, y = read_table(args.data)
    trainer = PrivateTrainer(Regressor(x.shape[1], config), config, args.seed)
    for epoch in range(config.epochs):
        loss, norm, first = trainer.epoch(x, y)
        log.info("epoch %d: loss %.4f, gradient norm %.4f", epoch, loss, norm)
        print(f"{epoch} loss {loss:.5f} norm {norm:.5f} first layer {first:.5f}")
    with torch.no_grad():
        print(f"final error {(trainer.model(x) - y).square().mean():.5f}")


if __name__ == "__main__":
    main()
