import math
from timm.layers import DropPath


def cosine_lr(opt, base, step, total):
    lr = base * 0.5 * (1 + math.cos(math.pi * step / total))
    for g in opt.param_groups:
        g["lr"] = lr * g.get("lr_scale", 1.0)
    return lr


class DropPathSchedule:
    """Raise the drop-path rate linearly during the run (as in DINO / BEiT recipes)."""

    def __init__(self, model, peak, total):
        self.peak, self.total = peak, total
        self.layers = [m for m in model.modules() if isinstance(m, DropPath)]
        self.depth = max(1, len(self.layers) - 1)

    def step(self, i):
        rate = self.peak * (i + 1) / self.total
        for k, layer in enumerate(self.layers):
            layer.drop_prob = rate * (k + 1) / (self.depth + 1)
        return rate
