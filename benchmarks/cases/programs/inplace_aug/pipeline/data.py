import torch
from torch.utils.data import Dataset


class CropDataset(Dataset):
    """Synthetic textures: the class is the direction of the stripes."""

    def __init__(self, length=24, size=28, seed=3):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.items = []
        for i in range(length):
            wave = xx if i % 2 else yy
            phase = torch.rand((), generator=g) * 6
            img = torch.sin(wave / 2.0 + phase).expand(2, size, size).clone()
            self.items.append((img + 0.1 * torch.randn(2, size, size, generator=g), i % 2))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]
