"""Train a stripe classifier with learned augmentation."""
import argparse
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader

from pipeline import CropDataset, Engine, build_augment


class Classifier(nn.Module):
    def __init__(self, augment, channels=2, width=6):
        super().__init__()
        self.augment = augment
        self.full = nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1))
        self.small = nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(2 * width, 2)

    def forward(self, img):
        full, small = self.augment(img)
        a = self.full(full[None]).amax((2, 3))
        b = self.small(small[None]).amax((2, 3))
        return self.head(torch.cat([a, b], 1))[0]


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--batch", type=int, default=6)
    p.add_argument("--augment", default="gain > thumbnail_and_whiten")
    p.add_argument("--ema", type=float, default=0.95)
    return p.parse_args()


def main(args):
    torch.manual_seed(0)
    model = Classifier(build_augment(args.augment, 2))
    averaged = copy.deepcopy(model)
    engine = Engine(model, lr=0.05)

    @engine.on("after_step")
    def update_average(engine, history):
        with torch.no_grad():
            for a, p in zip(averaged.parameters(), engine.model.parameters()):
                a.lerp_(p, 1 - args.ema)

    loader = DataLoader(CropDataset(), batch_size=args.batch, shuffle=True)
    history = engine.fit(loader, args.epochs)
    print(f"mean loss {history.mean():.4f} over {len(history)} steps")


if __name__ == "__main__":
    main(parse())
