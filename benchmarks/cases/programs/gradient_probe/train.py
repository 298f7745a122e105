"""Train a small transformer and scale the gradient inside chosen blocks for a part of the forward."""

import argparse
import logging
import math
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F

log = logging.getLogger("probe")
BLOCKS = {}


def register(cls):
    BLOCKS[cls.__name__.lower()] = cls
    return cls


@dataclass
class Options:
    vocabulary: int = 20
    width: int = 16
    heads: int = 2
    length: int = 12
    blocks: tuple = ("attention", "mixer", "attention")
    scale: float = 0.5


class GradientScale:
    """Scale the gradient of a tensor while the context is open."""

    def __init__(self, factor):
        self.factor = factor
        self.handle = None

    def attach(self, tensor):
        if tensor.requires_grad and self.factor != 1.0:
            self.handle = tensor.register_hook(lambda grad: grad * self.factor)
        return tensor

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        return False


@register
class Attention(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.heads = options.heads
        self.qkv = nn.Linear(options.width, 3 * options.width)
        self.out = nn.Linear(options.width, options.width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


@register
class Mixer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.inner = nn.Linear(options.width, 2 * options.width)
        self.outer = nn.Linear(2 * options.width, options.width)
        self.scale = options.scale

    def forward(self, x):
        with GradientScale(self.scale) as scale:
            hidden = scale.attach(self.inner(x))
            y = self.outer(F.silu(hidden))
        return y


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embed = nn.Embedding(options.vocabulary, options.width)
        self.position = nn.Parameter(torch.zeros(options.length, options.width))
        self.norms = nn.ModuleList(nn.LayerNorm(options.width) for _ in options.blocks)
        self.blocks = nn.ModuleList(BLOCKS[name](options) for name in options.blocks)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x))
        return self.head(x)


def batches(count, size, options, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        start = torch.randint(options.vocabulary, (size, 1), generator=generator)
        step = torch.randint(1, 4, (size, 1), generator=generator)
        yield (start + step * torch.arange(options.length + 1)) % options.vocabulary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--warmup", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)

    options = Options(scale=args.scale)
    model = Model(options)
    step_model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / args.warmup))
    for number, tokens in enumerate(batches(args.steps, args.batch, options, seed=1)):
        logits = step_model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if number % 4 == 3:
            norm = model.blocks[1].inner.weight.grad.norm().item()
            log.info("step %d loss %.4f", number, loss.item())
            print(f"{number} perplexity {math.exp(loss.item()):.3f} mixer gradient {norm:.5f}")


if __name__ == "__main__":
    main()
