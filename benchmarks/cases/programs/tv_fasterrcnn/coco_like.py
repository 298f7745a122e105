"""A COCO-style json with boxes, images drawn from it."""
import json
import os

import torch
from torch.utils.data import Dataset


class Shapes(Dataset):
    def __init__(self, root):
        with open(os.path.join(root, "annotations.json")) as f:
            blob = json.load(f)
        self.images = sorted(blob["images"], key=lambda r: r["id"])
        self.by_image = {}
        for a in blob["annotations"]:
            self.by_image.setdefault(a["image_id"], []).append(a)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        info = self.images[i]
        g = torch.Generator().manual_seed(info["id"])
        img = torch.rand(3, info["height"], info["width"], generator=g) * 0.2
        boxes, labels = [], []
        for a in self.by_image.get(info["id"], []):
            x, y, w, h = a["bbox"]
            img[a["category_id"] % 3, y:y + h, x:x + w] += 0.7
            boxes.append([x, y, x + w, y + h])
            labels.append(a["category_id"])
        target = {"boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
                  "labels": torch.tensor(labels, dtype=torch.int64),
                  "image_id": info["id"]}
        return img, target


def collate(batch):
    return tuple(zip(*batch))
