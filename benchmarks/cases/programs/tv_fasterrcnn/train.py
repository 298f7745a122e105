"""Detection fine-tuning, after torchvision's references/detection."""
import argparse
import math
import os
import sys

import torch
from torch.utils.data import DataLoader

from coco_like import Shapes, collate
from model import build


def warmup(optimizer, iters, factor):
    def f(x):
        return 1 if x >= iters else factor * (1 - x / iters) + x / iters
    return torch.optim.lr_scheduler.LambdaLR(optimizer, f)


def train_one_epoch(model, optimizer, loader, epoch, max_steps, print_freq=1):
    model.train()
    sched = warmup(optimizer, min(10, len(loader)), 1e-3) if epoch == 0 else None
    for i, (images, targets) in enumerate(loader):
        if i >= max_steps:
            break
        images = list(images)
        targets = [{k: v for k, v in t.items() if isinstance(v, torch.Tensor)} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss_dict.values())
        value = losses.item()
        if not math.isfinite(value):
            print(f"Loss is {value}, stopping training", loss_dict)
            sys.exit(1)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if sched is not None:
            sched.step()
        if i % print_freq == 0:
            parts = " ".join(f"{k}={v.item():.3f}" for k, v in loss_dict.items())
            print(f"epoch {epoch} [{i}/{len(loader)}] loss {value:.3f} {parts}")


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    n = 0
    for images, _ in loader:
        n += sum(len(o["boxes"]) for o in model(list(images)))
    print(f"{n} detections")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data-path", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data"))
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--max-steps", type=int, default=2)
    p.add_argument("-b", "--batch-size", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--compile", action="store_true")
    args = p.parse_args()

    torch.manual_seed(0)
    data = Shapes(args.data_path)
    loader = DataLoader(data, batch_size=args.batch_size, collate_fn=collate)
    model = build(num_classes=4, size=64)
    params = [q for q in model.parameters() if q.requires_grad]
    opt = torch.optim.SGD(params, lr=args.lr, momentum=0.9, weight_decay=1e-4)

    step_model = model
    if args.compile:
        step_model = torch.compile(model, fullgraph=True)
    for epoch in range(args.epochs):
        train_one_epoch(step_model, opt, loader, epoch, args.max_steps)
    evaluate(model, loader)


if __name__ == "__main__":
    main()
