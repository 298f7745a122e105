import torch
import torch.nn.functional as F

from .data import VOID


def criterion(outputs, target, aux_weight=0.5):
    losses = {k: F.cross_entropy(v, target, ignore_index=VOID) for k, v in outputs.items()}
    if len(losses) == 1:
        return losses["out"]
    return losses["out"] + aux_weight * losses["aux"]


def make_train_step(model, metrics):
    def train_step(image, target):
        out = model(image)
        loss = criterion(out, target)
        metrics.update(out["out"].detach().argmax(1), target)
        return loss
    return train_step


def poly_lr(optimizer, total, power=0.9):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: (1 - i / total) ** power)
