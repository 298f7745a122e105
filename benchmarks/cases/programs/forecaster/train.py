import json
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from net import Forecaster

settings = json.load(open("settings.json"))
rows = torch.from_numpy(np.load(settings["data"])).float()
loader = DataLoader(TensorDataset(rows[:, :4], rows[:, 4:]), settings["batch"], shuffle=True)
model = Forecaster(layers=settings["layers"])
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters())
losses = []
for epoch in range(3):
    for x, y in loader:
        out = compiled(x, y)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        losses.append(out.loss.item())
os.makedirs("out", exist_ok=True)
json.dump(losses, open("out/losses.json", "w"))
