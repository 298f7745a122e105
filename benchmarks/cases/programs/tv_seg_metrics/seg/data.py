import numpy as np
import torch
from torch.utils.data import TensorDataset, DataLoader
from torchvision.transforms import v2

VOID = 255


def load(path, batch_size, train=True):
    blob = np.load(path)
    x = torch.from_numpy(blob["x"]).permute(0, 3, 1, 2)
    y = torch.from_numpy(blob["y"]).long()
    tf = v2.Compose([
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ])
    return DataLoader(TensorDataset(tf(x), y), batch_size=batch_size, shuffle=False)
