"""Segmentation with torchvision, scored with torchmetrics during the step."""
import argparse
import pathlib

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

from seg.data import VOID, load
from seg.net import build
from seg.steps import make_train_step, poly_lr


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parent / "shapes.npz")
    p.add_argument("--classes", type=int, default=3)
    p.add_argument("--head", choices=["fcn", "deeplab"], default="fcn")
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--batch-size", type=int, default=4)
    args = p.parse_args()

    torch.manual_seed(0)
    loader = load(args.data, args.batch_size)
    model = build(args.classes, args.head).train()
    metrics = MetricCollection({
        "miou": MulticlassJaccardIndex(num_classes=args.classes, ignore_index=VOID),
        "acc": MulticlassAccuracy(num_classes=args.classes, ignore_index=VOID, average="micro"),
    })
    opt = torch.optim.SGD([
        {"params": model.backbone.parameters()},
        {"params": model.classifier.parameters()},
        {"params": model.aux_classifier.parameters(), "lr": 0.1},
    ], lr=0.02, momentum=0.9)
    sched = poly_lr(opt, args.epochs * len(loader))
    step = torch.compile(make_train_step(model, metrics), fullgraph=True)

    for epoch in range(args.epochs):
        metrics.reset()
        for image, target in loader:
            loss = step(image, target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            print(f"loss {loss.item():.4f}")
        scores = {k: round(float(v), 4) for k, v in metrics.compute().items()}
        print(f"epoch {epoch}: {scores}")


if __name__ == "__main__":
    main()
