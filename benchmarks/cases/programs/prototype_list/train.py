"""Class-incremental training: prototypes of the finished stages are kept and used as negatives."""

import argparse
import copy
import logging
import math

import torch
from torch import nn
import torch.nn.functional as F

log = logging.getLogger("stages")


class Residual(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(F.silu(self.up(self.norm(x)))))


class PrototypeMemory(nn.Module):
    """Similarities to what earlier stages have left behind."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.entries = []

    def remember(self, features):
        self.entries.append(F.normalize(features.detach().mean(0), dim=0))

    def forward(self, features):
        features = F.normalize(features, dim=-1)
        penalty = features.new_zeros(features.shape[0])
        for age, entry in enumerate(reversed(self.entries)):
            penalty = penalty + 0.5**age * (features @ entry).relu()
        return self.scale.exp() * penalty


class Learner(nn.Module):
    def __init__(self, inputs, width, depth, classes):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.memory = PrototypeMemory(width)
        self.head = nn.Linear(width, classes)

    def features(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x):
        features = self.features(x)
        return self.head(features), self.memory(features)


class Average:
    """An exponential moving average of the weights."""

    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.weights = copy.deepcopy(dict(model.named_parameters()))

    @torch.no_grad()
    def update(self, model):
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter, 1 - self.decay)


def stages(count, samples, inputs, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(count, classes, inputs, generator=generator)
    for stage in range(count):
        y = torch.randint(0, classes, (samples,), generator=generator)
        yield centers[stage, y] + 0.3 * torch.randn(samples, inputs, generator=generator), y


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=11)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(0)

    model = Learner(8, args.width, depth=2, classes=4)
    average = Average(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.stages * args.steps)
    forward = torch.compile(model, backend=args.backend)

    for number, (x, y) in enumerate(stages(args.stages, 32, 8, 4, seed=2)):
        for _ in range(args.steps):
            logits, penalty = forward(x)
            loss = F.cross_entropy(logits, y) + 0.01 * penalty.mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            average.update(model)
        accuracy = (logits.argmax(-1) == y).float().mean().item()
        log.info("stage %d loss %.4f accuracy %.2f", number, loss.item(), accuracy)
        with torch.no_grad():
            model.memory.remember(model.features(x))


if __name__ == "__main__":
    main()
