import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset


class TwoViews(L.LightningDataModule):
    class Views(Dataset):
        def __init__(self, images, noise):
            self.images, self.noise = images, noise

        def __len__(self):
            return len(self.images)

        def __getitem__(self, i):
            x = self.images[i]
            return x + self.noise * torch.randn_like(x), x.flip(-1) + self.noise * torch.randn_like(x)

    def __init__(self, n=32, size=16, batch=4, noise=0.1):
        super().__init__()
        self.n, self.size, self.batch, self.noise = n, size, batch, noise

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(1)
        self.train = self.Views(torch.rand(self.n, 3, self.size, self.size, generator=g), self.noise)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch, drop_last=True)
