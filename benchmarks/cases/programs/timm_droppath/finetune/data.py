import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


class NpzImages(Dataset):
    """uint8 images (N, H, W, 3) and integer labels in one .npz."""

    def __init__(self, path):
        blob = np.load(path)
        self.images, self.labels = blob["images"], blob["labels"]
        self.mean = torch.tensor(IMAGENET_DEFAULT_MEAN).view(3, 1, 1)
        self.std = torch.tensor(IMAGENET_DEFAULT_STD).view(3, 1, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = torch.from_numpy(self.images[i]).permute(2, 0, 1).float() / 255
        return (x - self.mean) / self.std, int(self.labels[i])


def build_loader(path, batch_size, seed):
    g = torch.Generator().manual_seed(seed)
    return DataLoader(NpzImages(path), batch_size=batch_size, shuffle=True,
                      drop_last=True, generator=g)
